//! Volumes and their mounts.

use k8s_openapi::api::core::v1::{PodSpec, Volume, VolumeMount};
use k8s_openapi::serde_json::{self, Value};

use super::texts::{LABEL, MOUNT_PATH, NODE_PATH, RELATIVE, Text};
use super::{Allowed, Each, Errors, Rule};

pub(super) const RULES: &[Rule] = &[
    ("spec.volumes.emptyDir.medium", Allowed::IsOrEmpty(&MEDIUM)),
    ("spec.volumes.emptyDir.sizeLimit", Allowed::Amount),
    ("spec.volumes.hostPath.path", Allowed::Is(&NODE_PATH)),
    (
        "spec.volumes.hostPath.type",
        Allowed::OneOf(&[
            "DirectoryOrCreate",
            "Directory",
            "FileOrCreate",
            "File",
            "Socket",
            "CharDevice",
            "BlockDevice",
        ]),
    ),
    ("spec.volumes.name", Allowed::Is(&LABEL)),
    ("spec.@.volumeMounts.mountPath", Allowed::Is(&MOUNT_PATH)),
    (
        "spec.@.volumeMounts.mountPropagation",
        Allowed::OneOf(&["None", "HostToContainer", "Bidirectional"]),
    ),
    (
        "spec.@.volumeMounts.recursiveReadOnly",
        Allowed::OneOf(&["Disabled", "IfPossible", "Enabled"]),
    ),
    ("spec.@.volumeMounts.subPath", Allowed::Is(&RELATIVE)),
    ("spec.@.volumeMounts.subPathExpr", Allowed::Is(&RELATIVE)),
];

const MEDIUM: Text = Text::new(
    "a medium",
    "use Memory, HugePages or HugePages-SIZE, or remove it",
    |text| matches!(text, "Memory" | "HugePages") || text.starts_with("HugePages-"),
);

pub(super) fn check(spec: &PodSpec, errors: &mut Errors) {
    let volumes = || spec.volumes.iter().flatten().enumerate();
    let names = volumes().map(|(at, v)| (format!("spec.volumes[{at}].name"), &v.name));
    errors.unique(names, |name| {
        format!("another volume is named {name:?}: rename one")
    });
    for (at, volume) in volumes() {
        let field = format!("spec.volumes[{at}]");
        let sources = sources(volume);
        if sources.len() > 1 {
            let problem = format!("{} are given: keep one", sources.join(" and "));
            errors.add(field, problem);
        }
    }
}

/// Returns the kinds of sources that are given: one for each field except the name.
fn sources(volume: &Volume) -> Vec<String> {
    match serde_json::to_value(volume) {
        Ok(Value::Object(fields)) => fields.into_iter().map(|(name, _)| name),
        _ => return Vec::new(),
    }
    .filter(|name| name != "name")
    .collect()
}

pub(super) fn check_mounts(each: &Each<'_>, errors: &mut Errors) {
    let mounts = || each.container.volume_mounts.iter().flatten().enumerate();
    let path = |at: usize| format!("{}.volumeMounts[{at}]", each.path);
    let places = mounts().map(|(at, mount)| (format!("{}.mountPath", path(at)), &mount.mount_path));
    errors.unique(places, |place| {
        format!("another volume is mounted at {place:?}: change one")
    });
    for (at, mount) in mounts() {
        let mut volumes = each.pod.volumes.iter().flatten();
        if !volumes.any(|volume| volume.name == mount.name) {
            let problem = format!(
                "there is no volume {:?}: add it to spec.volumes",
                mount.name
            );
            errors.add(format!("{}.name", path(at)), problem);
        }
        check_mount(&path(at), mount, each, errors);
    }
}

fn check_mount(path: &str, mount: &VolumeMount, each: &Each<'_>, errors: &mut Errors) {
    let set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if set(&mount.sub_path) && set(&mount.sub_path_expr) {
        let problem = "subPath is given as well: keep one";
        errors.add(format!("{path}.subPathExpr"), problem);
    }
    let context = each.container.security_context.as_ref();
    let privileged = context.and_then(|context| context.privileged) == Some(true);
    let propagation = mount.mount_propagation.as_deref().unwrap_or("None");
    if propagation == "Bidirectional" && !privileged {
        let problem = "\"Bidirectional\" needs a privileged container: use HostToContainer, or write \
                       securityContext: {privileged: true}";
        errors.add(format!("{path}.mountPropagation"), problem);
    }
    let recursive = mount.recursive_read_only.as_deref().unwrap_or("Disabled");
    if matches!(recursive, "Enabled" | "IfPossible") {
        if mount.read_only != Some(true) {
            let problem = format!("{recursive:?} needs readOnly: true: write it");
            errors.add(format!("{path}.recursiveReadOnly"), problem);
        } else if propagation != "None" {
            let problem = format!("{recursive:?} is not allowed with mountPropagation: remove one");
            errors.add(format!("{path}.recursiveReadOnly"), problem);
        }
    }
}
