//! Checks `api.proto` against the facts about CRI v1.
//!
//! `proto/runtime/v1/facts.tsv` lists the rpcs, enum values and fields of CRI v1. Everything that `api.proto` declares
//! must be in this list. A message or enum in `api.proto` must declare all of its fields or values, or reserve their
//! numbers. `api.proto` may lack whole messages and rpcs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use protox::prost_reflect::{
    Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor,
    ServiceDescriptor,
};

const PACKAGE: &str = "runtime.v1";

/// Each rpc: (service, method) → (type of request, type of response). A streamed type has the prefix "stream ".
type Rpcs = BTreeMap<(String, String), (String, String)>;
/// The fields of a message: number → (name, type as written in `facts.tsv`).
type Fields = BTreeMap<u32, (String, String)>;
/// Number → name.
type Values = BTreeMap<i32, String>;

/// The declarations in `api.proto`, or the declarations in `facts.tsv`.
#[derive(Default)]
struct Contract {
    rpcs: Rpcs,
    messages: BTreeMap<String, Fields>,
    enums: BTreeMap<String, Values>,
    /// The reserved numbers of a message or an enum.
    reserved: BTreeMap<String, BTreeSet<i64>>,
}

// === the facts ===

fn facts(text: &str) -> Contract {
    let mut all = Contract::default();
    for (at, line) in text.lines().enumerate() {
        let parts: Vec<&str> = line.split('\t').collect();
        let number = |s: &str| {
            s.parse()
                .unwrap_or_else(|e| panic!("facts line {}: {e}", at + 1))
        };
        match parts[..] {
            ["rpc", service, name, request, response] => {
                let key = (service.to_owned(), name.to_owned());
                let old = all
                    .rpcs
                    .insert(key, (request.to_owned(), response.to_owned()));
                assert!(old.is_none(), "facts line {}: duplicate rpc", at + 1);
            }
            ["enum", name, n, value] => {
                all.enums
                    .entry(name.to_owned())
                    .or_default()
                    .insert(number(n), value.to_owned());
            }
            ["field", message, n, name, kind] => {
                let n = u32::try_from(number(n)).expect("field numbers are positive");
                let fields = all.messages.entry(message.to_owned()).or_default();
                let old = fields.insert(n, (name.to_owned(), kind.to_owned()));
                assert!(old.is_none(), "facts line {}: duplicate number {n}", at + 1);
            }
            ["message", name] => {
                all.messages.entry(name.to_owned()).or_default();
            }
            _ => panic!("facts line {} is not valid: {line:?}", at + 1),
        }
    }
    all
}

// === the proto ===

fn declared(pool: &DescriptorPool) -> Contract {
    let mut all = Contract::default();
    for service in pool.services() {
        add_service(&mut all, &service);
    }
    // `all_messages` includes nested messages. A map entry is left out: its map field stands for it.
    for message in pool.all_messages().filter(|m| !m.is_map_entry()) {
        add_message(&mut all, &message);
    }
    for enumeration in pool.all_enums() {
        add_enum(&mut all, &enumeration);
    }
    all
}

fn add_service(all: &mut Contract, service: &ServiceDescriptor) {
    for method in service.methods() {
        let side = |m: MessageDescriptor, streaming: bool| {
            format!(
                "{}{}",
                if streaming { "stream " } else { "" },
                local(m.full_name())
            )
        };
        all.rpcs.insert(
            (local(service.full_name()), method.name().to_owned()),
            (
                side(method.input(), method.is_client_streaming()),
                side(method.output(), method.is_server_streaming()),
            ),
        );
    }
}

fn add_message(all: &mut Contract, message: &MessageDescriptor) {
    let name = local(message.full_name());
    let fields = message
        .fields()
        .map(|f| (f.number(), (f.name().to_owned(), type_of(&f))));
    all.messages.insert(name.clone(), fields.collect());
    let reserved = message.reserved_ranges().flatten().map(i64::from);
    all.reserved.entry(name).or_default().extend(reserved);
}

fn add_enum(all: &mut Contract, enumeration: &EnumDescriptor) {
    let name = local(enumeration.full_name());
    let values = enumeration
        .values()
        .map(|v| (v.number(), v.name().to_owned()));
    all.enums.insert(name.clone(), values.collect());
    let reserved = enumeration.reserved_ranges().flatten().map(i64::from);
    all.reserved.entry(name).or_default().extend(reserved);
}

/// The type of a field as `facts.tsv` writes it.
fn type_of(field: &FieldDescriptor) -> String {
    let mut text = match field.kind() {
        Kind::Message(entry) if entry.is_map_entry() => format!(
            "map<{},{}>",
            kind(&entry.map_entry_key_field().kind()),
            kind(&entry.map_entry_value_field().kind())
        ),
        other => {
            let repeated = field.cardinality() == Cardinality::Repeated;
            format!(
                "{}{}",
                if repeated { "repeated " } else { "" },
                kind(&other)
            )
        }
    };
    if let Some(oneof) = field.containing_oneof() {
        text.push_str(&format!(" oneof={}", oneof.name()));
    }
    if field
        .field_descriptor_proto()
        .options
        .as_ref()
        .is_some_and(|o| o.deprecated == Some(true))
    {
        text.push_str(" deprecated");
    }
    text
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Message(m) => local(m.full_name()),
        Kind::Enum(e) => local(e.full_name()),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

/// A name without the package.
fn local(full: &str) -> String {
    full.strip_prefix(PACKAGE)
        .and_then(|n| n.strip_prefix('.'))
        .unwrap_or(full)
        .to_owned()
}

// === the comparison ===

/// All differences between the declarations of `api.proto` and `facts.tsv`.
fn differences(declared: &Contract, facts: &Contract) -> Vec<String> {
    let mut wrong = Vec::new();
    for (key @ (service, name), here) in &declared.rpcs {
        match facts.rpcs.get(key) {
            None => wrong.push(format!("rpc {service}.{name}: not in the facts")),
            Some(fact) if fact != here => {
                wrong.push(format!(
                    "rpc {service}.{name}: {here:?}, in the facts {fact:?}"
                ));
            }
            Some(_) => {}
        }
    }
    for (name, fields) in &declared.messages {
        let spell = |(field, kind): &(String, String)| format!("{kind} {field}");
        let here = fields
            .iter()
            .map(|(n, f)| (i64::from(*n), spell(f)))
            .collect();
        let fact = facts.messages.get(name);
        let fact = fact.map(|f| f.iter().map(|(n, f)| (i64::from(*n), spell(f))).collect());
        let reserved = declared.reserved.get(name).cloned().unwrap_or_default();
        compare("message", name, &here, fact.as_ref(), &reserved, &mut wrong);
    }
    for (name, values) in &declared.enums {
        let here = values
            .iter()
            .map(|(n, v)| (i64::from(*n), v.clone()))
            .collect();
        let fact = facts.enums.get(name);
        let fact = fact.map(|f| f.iter().map(|(n, v)| (i64::from(*n), v.clone())).collect());
        let reserved = declared.reserved.get(name).cloned().unwrap_or_default();
        compare("enum", name, &here, fact.as_ref(), &reserved, &mut wrong);
    }
    wrong
}

fn compare(
    what: &str,
    name: &str,
    here: &BTreeMap<i64, String>,
    fact: Option<&BTreeMap<i64, String>>,
    reserved: &BTreeSet<i64>,
    wrong: &mut Vec<String>,
) {
    let Some(fact) = fact else {
        wrong.push(format!("{what} {name}: not in the facts"));
        return;
    };
    for (number, text) in here {
        match fact.get(number) {
            None => wrong.push(format!(
                "{what} {name}: {number} ({text}) is not in the facts"
            )),
            Some(other) if other != text => {
                wrong.push(format!(
                    "{what} {name}: {number} is `{text}`, in the facts `{other}`"
                ));
            }
            Some(_) => {}
        }
    }
    for (number, text) in fact {
        if !here.contains_key(number) && !reserved.contains(number) {
            wrong.push(format!(
                "{what} {name}: {number} ({text}) is neither declared nor reserved"
            ));
        }
    }
}

// === tests ===

fn repository_file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../proto")
        .join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The declarations of a proto file that has the text `text`.
fn compile(text: &str) -> Contract {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("test.proto"), text).expect("the proto can be written");
    let set = protox::compile(["test.proto"], [dir.path()]).expect("the proto compiles");
    declared(&DescriptorPool::from_file_descriptor_set(set).expect("valid descriptors"))
}

fn check(text: &str) -> Vec<String> {
    differences(
        &compile(text),
        &facts(&repository_file("runtime/v1/facts.tsv")),
    )
}

#[test]
fn api_proto_agrees_with_the_facts_about_cri_v1() {
    let wrong = check(&repository_file("runtime/v1/api.proto"));
    assert!(wrong.is_empty(), "api.proto differs: {wrong:#?}");
}

#[test]
fn proto_parser_finds_rpcs_messages_enums_and_reserved_numbers() {
    let declared = compile(&repository_file("runtime/v1/api.proto"));
    assert_eq!(declared.rpcs.len(), 27);
    assert!(
        declared.messages.len() > 90,
        "{} messages",
        declared.messages.len()
    );
    assert_eq!(declared.enums["Signal"].len(), 66);
    assert!(declared.reserved["ContainerConfig"].contains(&16));
}

/// Each deliberate mistake in the text of `api.proto` causes a report; the correct text causes none.
#[test]
fn contract_check_reports_each_mistake_in_api_proto() {
    let proto = repository_file("runtime/v1/api.proto");
    // Each change of a number causes two reports: the facts lack the new one, and nothing declares the old one.
    let renumbered = [
        ("created_at = 3; // ns, stamped", "created_at = 6; //"),
        ("CONTAINER_UNKNOWN = 3;", "CONTAINER_UNKNOWN = 4;"),
    ];
    let other = [
        // Types and names.
        ("int32 exit_code = 7;", "int64 exit_code = 7;"),
        ("string reason = 10;", "string reasons = 10;"),
        ("repeated PodSandbox items = 1;", "PodSandbox items = 1;"),
        ("string> unified = 9;", "bytes> unified = 9;"),
        ("string log_path = 15;", "optional string log_path = 15;"),
        ("TARGET = 3;", "TARGETS = 3;"),
        ("profile_path = 10 [deprecated = true]", "profile_path = 10"),
        (
            "string message = 11;",
            "string message = 11 [deprecated = true];",
        ),
        // Missing fields.
        ("string image_id = 17;", ""),
        ("reserved 16; // Windows", ""),
        // Messages and calls.
        ("message PodIP {", "message Nothing {}\nmessage PodIP {"),
        (
            "rpc Version(",
            "rpc Vision(VersionRequest) returns (VersionResponse);\nrpc Version(",
        ),
        (
            "(stream ContainerEventResponse)",
            "(ContainerEventResponse)",
        ),
        ("rpc Status(StatusRequest)", "rpc Status(VersionRequest)"),
    ];
    let reports = |right: &str, wrong: &str| {
        let places = proto.matches(right).count();
        assert_eq!(places, 1, "`{right}` in the proto");
        check(&proto.replacen(right, wrong, 1))
    };
    for (right, wrong) in renumbered {
        assert_eq!(reports(right, wrong).len(), 2, "{wrong}");
    }
    for (right, wrong) in other {
        assert_eq!(reports(right, wrong).len(), 1, "{wrong}");
    }
}
