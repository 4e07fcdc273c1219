use std::fs;
use std::io;
use std::path::Path;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixListener;

use super::*;
use crate::doctor::host::fake::{FakeHost, codes};

/// How a fake bus answers the request for the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Systemd {
    /// With this serial number, and one that is larger by so much at each further request.
    Answers {
        first: u32,
        step: u32,
        big_endian: bool,
    },
    Silent,
    Missing,
    /// The bus denies access.
    Denied,
    /// The answer is no message.
    Malformed,
}

/// A bus on a unix socket with the protocol of dbus-daemon. It serves one connection at a time.
async fn serve(listener: UnixListener, systemd: Systemd) -> io::Result<()> {
    let mut requests = 0;
    loop {
        let (stream, _) = listener.accept().await?;
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        assert_eq!(line, "\0AUTH EXTERNAL\r\n");
        if systemd == Systemd::Denied {
            stream.write_all(b"REJECTED EXTERNAL\r\n").await?;
            continue;
        }
        for (answer, next) in [("DATA\r\n", "DATA\r\n"), ("OK 1234\r\n", "BEGIN\r\n")] {
            stream.write_all(answer.as_bytes()).await?;
            line.clear();
            stream.read_line(&mut line).await?;
            assert_eq!(line, next);
        }
        let (serial, hello) = request(&mut stream).await?;
        assert!(hello.contains("Hello"), "{hello}");
        // A signal arrives first.
        stream
            .write_all(&message(4, 1, None, "", ":1.7", false))
            .await?;
        stream
            .write_all(&message(2, 2, Some(serial), "", ":1.7", false))
            .await?;
        let (serial, get) = request(&mut stream).await?;
        assert!(get.contains("org.freedesktop.systemd1.Manager"), "{get}");
        let answer = match systemd {
            Systemd::Answers {
                first,
                step,
                big_endian,
            } => {
                let own = first.saturating_add(step.saturating_mul(requests));
                message(2, own, Some(serial), "", "219", big_endian)
            }
            Systemd::Missing => {
                let error = "org.freedesktop.DBus.Error.ServiceUnknown";
                message(3, 3, Some(serial), error, "", false)
            }
            Systemd::Malformed => vec![0xff; 64],
            Systemd::Silent | Systemd::Denied => {
                // Until the client gives up.
                stream.read_to_end(&mut Vec::new()).await?;
                continue;
            }
        };
        requests += 1;
        stream.write_all(&answer).await?;
    }
}

/// The serial number of a request and its text.
async fn request(stream: &mut BufReader<UnixStream>) -> io::Result<(u32, String)> {
    let mut head = [0; 16];
    stream.read_exact(&mut head).await?;
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
    let [body, serial, fields] = [number(4), number(8), number(12)];
    let mut rest = vec![0; usize::try_from(fields.next_multiple_of(8) + body).unwrap()];
    stream.read_exact(&mut rest).await?;
    Ok((serial, String::from_utf8_lossy(&rest).into_owned()))
}

/// A message with a string in a variant.
fn message(
    kind: u8,
    serial: u32,
    reply_to: Option<u32>,
    error: &str,
    text: &str,
    big_endian: bool,
) -> Vec<u8> {
    let number = |n: usize| {
        let n = u32::try_from(n).unwrap();
        if big_endian {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        }
    };
    let string = |text: &str| [&number(text.len())[..], text.as_bytes(), b"\0"].concat();
    let padded = |mut bytes: Vec<u8>| {
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    };
    let mut fields = [b"\x07\x01s\0".to_vec(), string(":1.0")].concat();
    fields = [padded(fields), b"\x08\x01g\0\x01v\0".to_vec()].concat();
    if let Some(to) = reply_to {
        let to = number(usize::try_from(to).unwrap());
        fields = [padded(fields), b"\x05\x01u\0".to_vec(), to.to_vec()].concat();
    }
    if !error.is_empty() {
        fields = [padded(fields), b"\x04\x01s\0".to_vec(), string(error)].concat();
    }
    // The length of the string is aligned to 4.
    let body = [b"\x01s\0\0".to_vec(), string(text)].concat();
    let order = if big_endian { b'B' } else { b'l' };
    let serial = number(usize::try_from(serial).unwrap());
    let head = [
        vec![order, kind, 0, 1],
        number(body.len()).to_vec(),
        serial.to_vec(),
    ]
    .concat();
    let head = [head, number(fields.len()).to_vec(), fields].concat();
    [padded(head), body].concat()
}

/// A host with systemd as the first process and this bus.
fn host(systemd: Systemd) -> FakeHost {
    let host = FakeHost::new();
    host.process(1, "systemd", 'S', 0);
    fs::create_dir_all(host.root().join("run/dbus")).unwrap();
    let socket = host.root().join("run/dbus/system_bus_socket");
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(serve(listener, systemd));
    host
}

async fn examine(root: &Path) -> (Option<Bus>, Option<String>) {
    let target = HostTarget {
        root: root.to_owned(),
        ..HostTarget::new(None)
    };
    let clock = Clock::start();
    collect(
        &target,
        clock,
        clock.now().after(Duration::from_millis(100)),
    )
    .await
}

#[tokio::test]
async fn serials_of_two_answers_give_the_rate() {
    for big_endian in [false, true] {
        let host = host(Systemd::Answers {
            first: 4_000_000_000,
            step: 5_001,
            big_endian,
        });
        let clock = Clock::start();
        let began = clock.now();
        let (bus, why) = examine(host.root()).await;
        let most = clock.now().since(began).as_secs_f64();
        assert_eq!(why, None);
        let bus = bus.unwrap();
        assert_eq!(bus.version.as_deref(), Some("219"));
        assert_eq!(bus.serial, Some(4_000_005_001));
        let rate = bus.per_second.unwrap();
        // The answers were less apart than all took.
        assert!(rate.is_finite() && rate >= 5_000.0 / most, "{rate}");
        let findings = check(Some(&bus));
        assert_eq!(codes(&findings), [("systemd_serial", Severity::Warning)]);
        assert!(findings[0].summary.contains("93 %"), "{findings:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn systemd_that_never_answers_is_critical() {
    let host = host(Systemd::Silent);
    let (bus, _) = examine(host.root()).await;
    let silent = Bus {
        silent: true,
        ..Bus::default()
    };
    assert_eq!(bus, Some(silent));
    let findings = check(bus.as_ref());
    assert_eq!(codes(&findings), [("systemd_silent", Severity::Critical)]);
}

#[tokio::test]
async fn bus_that_refuses_is_named_as_unreadable() {
    for (systemd, reason) in [
        (Systemd::Missing, "ServiceUnknown"),
        (Systemd::Denied, "denies access"),
        (Systemd::Malformed, "malformed"),
    ] {
        let host = host(systemd);
        let (bus, why) = examine(host.root()).await;
        assert_eq!(bus, None, "{systemd:?}");
        assert!(why.is_some_and(|why| why.contains(reason)), "{systemd:?}");
    }
    let host = FakeHost::new();
    assert_eq!(
        examine(host.root()).await,
        (None, None),
        "there is no systemd"
    );
    host.process(1, "systemd", 'S', 0);
    let (_, why) = examine(host.root()).await;
    assert!(why.is_some_and(|why| why.contains("No such file")));
}

#[test]
fn findings_follow_from_version_serial_and_rate() {
    use Severity::{Critical, Warning};
    let bus = |version: &str, share: f64, per_second: f64| Bus {
        silent: false,
        version: Some(version.to_owned()),
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        serial: Some((share * f64::from(u32::MAX)) as u32),
        per_second: Some(per_second),
    };
    let year = f64::from(u32::MAX) / (365.0 * 86_400.0);
    for (bus, severity) in [
        (bus("219", 0.5, year), None),
        (bus("219", 0.91, 0.0), Some(Warning)),
        (bus("219", 0.995, year), Some(Critical)),
        (bus("239 (239-5.el8)", 0.5, year * 7.0), Some(Warning)),
        (bus("241", 0.05, year * 20.0), None),
        (bus("v241", 0.91, year), Some(Warning)),
        (bus("242", 0.995, year), None),
        (bus("252 (252.39-1~deb12u1)", 0.995, year), None),
        (bus("unknown", 0.995, year), None),
    ] {
        let found = severity.map(|severity| ("systemd_serial", severity));
        assert_eq!(codes(&check(Some(&bus))), Vec::from_iter(found), "{bus:?}");
    }
    assert_eq!(check(None), []);
    assert_eq!(check(Some(&Bus::default())), []);
}
