//! Tests the rows of lists: the row decoder reads id and state, and the other fields only if `Row::report` is called.

use pleg_cri::{convert, rows, v1};
use pleg_runtime::Row;
use pleg_runtime::core::{Kind, Report, ReportedState};
use prost::{DecodeError, Message};

type Rows = fn(&[u8], &mut dyn FnMut(Row<'_>)) -> Result<(), DecodeError>;

/// Decodes all rows of a list. Checks that id, kind and state are equal before and after decoding a row completely.
fn read(rows: Rows, message: Vec<u8>) -> Result<Vec<Report>, DecodeError> {
    let mut all = Vec::new();
    rows(&message, &mut |row| {
        let brief = (row.id().to_owned(), row.kind(), row.shown());
        if let Some(report) = row.report() {
            let (id, kind) = (report.id.to_string(), report.identity.kind);
            assert_eq!(brief, (id, kind, report.shown));
            all.push(report);
        }
    })?;
    Ok(all)
}

fn container(id: &str, state: i32) -> v1::Container {
    v1::Container {
        id: id.into(),
        pod_sandbox_id: "s".into(),
        state,
        created_at: 1_700_000_000_000_000_000,
        ..Default::default()
    }
}

/// A length-delimited field.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).expect("a short field");
    [&[number << 3 | 2, length], value].concat()
}

#[test]
fn row_decoder_gives_the_same_rows_as_convert_container_row() {
    // The decoder and `convert` omit the row without an id, and turn a state that is not in the CRI into UNKNOWN.
    let containers = [("a", 1), ("", 1), ("b", 2), ("c", 9)];
    let containers: Vec<_> = containers.map(|(id, state)| container(id, state)).into();
    let expected: Vec<_> = containers
        .iter()
        .cloned()
        .filter_map(convert::container_row)
        .collect();
    let message = v1::ListContainersResponse { containers };
    let read_rows = read(rows::containers, message.encode_to_vec()).expect("a valid list");
    assert_eq!(read_rows, expected);
    assert_eq!(read_rows[2].shown, ReportedState::Unknown);

    let sandbox = v1::PodSandbox {
        id: "s".into(),
        state: v1::PodSandboxState::SandboxNotready.into(),
        ..Default::default()
    };
    let items = vec![sandbox];
    let message = v1::ListPodSandboxResponse { items };
    let read_rows = read(rows::sandboxes, message.encode_to_vec()).expect("a valid list");
    let shown = (read_rows[0].identity.kind, read_rows[0].shown);
    assert_eq!(shown, (Kind::Sandbox, ReportedState::Exited));
}

#[test]
fn row_with_malformed_image_fails_only_if_decoded_completely() {
    // The image is malformed.
    let row = [container("a", 1).encode_to_vec(), field(4, &[0xff])].concat();
    let mut shown = Vec::new();
    let mut brief = |row: Row<'_>| shown.push((row.id().to_owned(), row.shown()));
    rows::containers(&field(1, &row), &mut brief).expect("id and state are valid");
    assert_eq!(shown, [("a".to_owned(), ReportedState::Running)]);
    assert!(read(rows::containers, field(1, &row)).is_err());
}

#[test]
fn malformed_list_is_an_error() {
    let row = container("a", 1).encode_to_vec();
    for message in [
        field(1, &row[..row.len() - 1]),
        field(1, &row)[..10].to_vec(),
        // The id is not UTF-8, and the state is not a number.
        field(1, &field(1, &[0xff])),
        field(1, &[row.clone(), field(6, b"")].concat()),
        // The rows are not messages.
        vec![1 << 3, 0],
    ] {
        assert!(read(rows::containers, message).is_err());
    }
}
