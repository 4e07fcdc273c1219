//! The status of each pod as `/pods` shows it, from the pod's start to its removal, compared with upstream's kubelet.
//!
//! A line `pod NAME | FIELDS OF THE POD | FIELDS OF ITS CONTAINER c` begins a scenario, and a line with `!` is an
//! action. The lines after an action are fields that the status must then have, all at the same time: each with its
//! value, and with upstream's function that sets it, unless that is the usual one. `c.state` is a field of the
//! container c, `Ready` a condition with its status, reason and message. `*` is any value, `-` none, `~TEXT` a value
//! that contains TEXT. Times and addresses of the simulated runtime are not compared.

use futures::StreamExt as _;
use pleg::PodUid;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_sim::Mode;
use serde_json::Value;

use super::node::Node;
use super::statuses_table::TABLE;

/// The number of scenarios that run at a time.
const AT_ONCE: usize = 8;

/// A field, its value, and upstream's file and function that set it.
type Expected = [&'static str; 3];

struct Life {
    name: &'static str,
    spec: String,
    /// An action, and the fields expected after it.
    steps: Vec<(&'static str, Vec<Expected>)>,
}

fn lives() -> Vec<Life> {
    let mut lives: Vec<Life> = Vec::new();
    for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let Some(name) = cells[0].strip_prefix("pod ") {
            let container = format!("name: c, image: 'app:1', {}", cells[2]);
            let spec = format!("{{{} containers: [{{{container}}}]}}", cells[1]);
            let steps = vec![("", Vec::new())];
            lives.push(Life { name, spec, steps });
            continue;
        }
        let life = lives.last_mut().unwrap();
        if let Some(action) = cells[0].strip_prefix("! ") {
            life.steps.push((action, Vec::new()));
            continue;
        }
        let (_, expected) = life.steps.last_mut().unwrap();
        let source = cells.get(1).copied().unwrap_or("as usual");
        expected.extend(cells[0].split("; ").map(|row| {
            let (field, value) = row.split_once(' ').unwrap_or((row, ""));
            [field, value.trim(), source]
        }));
    }
    lives
}

fn field(status: &Value, path: &str) -> Value {
    let named = |list: &str, key: &str, name: &str| {
        let mut items = status[list].as_array().into_iter().flatten();
        items.find(|item| item[key] == name).cloned()
    };
    if path.starts_with(char::is_uppercase) {
        let condition = named("conditions", "type", path).unwrap_or_default();
        let words = ["status", "reason", "message"].map(|key| condition[key].as_str());
        let words: Vec<_> = words.into_iter().flatten().collect();
        return words.join(" ").into();
    }
    let (object, path) = match path.split_once('.') {
        Some((name, path)) => {
            let lists = ["containerStatuses", "initContainerStatuses"];
            let found = lists.iter().find_map(|list| named(list, "name", name));
            (found.unwrap_or_default(), path)
        }
        None => (status.clone(), path),
    };
    let found = object.pointer(&format!("/{path}"));
    found.cloned().unwrap_or_default()
}

fn is_so(found: &Value, expected: &str) -> bool {
    let text = found.as_str();
    match expected {
        "-" => found.is_null() || text == Some(""),
        "*" => !found.is_null() && text != Some(""),
        _ => match expected.strip_prefix('~') {
            Some(part) => text.is_some_and(|text| text.contains(part)),
            None => text.map_or_else(|| found.to_string(), str::to_owned) == expected,
        },
    }
}

/// Performs an action. `uid` is `None` until the scenario has set its pod.
async fn act(node: &Node, uid: Option<&PodUid>, action: &str) {
    let words: Vec<&str> = action.split(' ').collect();
    match (&words[..], uid) {
        (["knob", knob], _) => node.knob(knob),
        (["kill", name, code], Some(uid)) => {
            let id = field(&node.status(uid), &format!("{name}.containerID"));
            let id = id.as_str().and_then(|id| id.rsplit('/').next());
            let code = code.parse().unwrap();
            let killed = node.sim.kill_container(id.unwrap_or_default(), code);
            assert!(killed, "{action}");
        }
        (["message", text], Some(uid)) => {
            let file = node.dir.path().join(format!("pods/{uid}/containers/c/0"));
            std::fs::write(file, text).unwrap();
        }
        (["delete"], Some(uid)) => {
            node.workers.delete(uid);
            node.until_gone(uid).await;
        }
        _ => panic!("{action} is no action"),
    }
}

/// Runs one scenario. Returns the rows that do not match.
async fn live(life: Life) -> Vec<String> {
    let node = Node::with_back_off(Mode::Containerd2, BackOffSettings::default()).await;
    let mut uid = None;
    for (action, expected) in life.steps {
        if !action.is_empty() {
            act(&node, uid.as_ref(), action).await;
        }
        if expected.is_empty() {
            continue;
        }
        let uid = uid.get_or_insert_with(|| node.set("web", &life.spec));
        let wrong = || {
            let status = node.status(uid);
            let row = |[path, value, source]: &Expected| {
                let found = field(&status, path);
                let text = format!("{}: {path} is {found}, not {value}: {source}", life.name);
                (!is_so(&found, value)).then_some(text)
            };
            expected.iter().filter_map(row).collect::<Vec<_>>()
        };
        if !node.is_soon(|| wrong().is_empty()).await {
            return wrong();
        }
    }
    Vec::new()
}

#[tokio::test]
async fn pod_statuses_match_upstream_from_start_to_removal() {
    let all = lives();
    assert!(all.len() >= 40, "{}", all.len());
    let lives = futures::stream::iter(all).map(live);
    let wrong: Vec<_> = lives.buffer_unordered(AT_ONCE).concat().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
