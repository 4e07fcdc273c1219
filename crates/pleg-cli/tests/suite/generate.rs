//! `pleg completions` and `pleg man`.

use std::fs;
use std::process::Command;

use crate::support::{TestDir, pleg};

fn script(shell: &str) -> String {
    let output = pleg(&["completions", shell]).output().expect("it runs");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn completions_have_the_commands_and_their_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let script = script(shell);
        for word in ["agent", "relist-period", "config", "containerd-1.7"] {
            assert!(script.contains(word), "{word}: {shell}");
        }
    }
}

#[test]
fn bash_completes_a_command_with_the_script() {
    let dir = TestDir::new();
    let file = dir.path("pleg.bash");
    let test = "\nCOMP_WORDS=(pleg con); COMP_CWORD=1; _pleg pleg con pleg; echo $COMPREPLY\n";
    fs::write(&file, script("bash") + test).expect("written");
    let output = Command::new("bash").arg(&file).output().expect("bash runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "config\n");
}

#[test]
fn each_command_has_a_manual_page() {
    let dir = TestDir::new();
    let pages = dir.path("share/man1");
    let pages = pages.to_str().expect("UTF-8");
    let output = pleg(&["man", pages]).output().expect("it runs");
    assert!(output.status.success());
    for (page, words) in [
        ("pleg.1", "lifecycle events of the pods"),
        ("pleg-agent.1", "relist\\-period"),
        ("pleg-config-check.1", "FILE"),
        ("pleg-sim-ctl.1", "socket"),
    ] {
        let text = fs::read_to_string(format!("{pages}/{page}")).expect(page);
        let is_page = text.starts_with(".ie") && text.contains(words);
        assert!(is_page, "{page}: {text}");
    }
}
