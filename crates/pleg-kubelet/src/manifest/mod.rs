//! Manifests of static pods: a `v1.Pod` in a file, as YAML or JSON.

mod check;
mod directory;
mod fields;
mod source;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::serde_json::{self, Value};

use crate::cri_config::FieldError;
use crate::names;
use crate::pod_status::qos_class;
use crate::spec::PodSpec;

pub use directory::{Changes, DirectoryError, Manifests, ReadManifests, read_directory};
pub use source::ManifestSource;

/// A static pod that this kubelet can run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Manifest {
    /// The file that it was read from.
    pub file: PathBuf,
    /// The pod, with its uid, its name with the name of the node, and its namespace.
    pub pod: Pod,
    /// What pod workers use.
    pub spec: PodSpec,
}

/// A manifest that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManifestError {
    /// The file.
    pub file: PathBuf,
    /// The field; `None` if the file as a whole is wrong.
    pub field: Option<String>,
    /// What is wrong, and what to do.
    pub problem: String,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ManifestError {}

impl ManifestError {
    fn of_file(file: &Path, problem: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            field: None,
            problem: problem.into(),
        }
    }

    fn of_field(file: &Path, error: FieldError) -> Self {
        Self {
            file: file.to_owned(),
            field: Some(error.field),
            problem: error.problem,
        }
    }
}

impl Manifest {
    /// The manifest in the contents of a file, for the node with that name.
    ///
    /// The name of the pod gets the name of the node as its suffix, as upstream's does. Its uid is a
    /// hash of the node's name, the file's name and the contents; so a changed manifest is another
    /// pod. In contrast to upstream, the resources of containers do not count, only the class of the
    /// pod that follows from them: they can be changed while the pod runs.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(file: &Path, contents: &str, node: &str) -> Result<Self, ManifestError> {
        let mut given = yaml(contents).map_err(|problem| ManifestError::of_file(file, problem))?;
        fields::quantities_as_text(&mut given);
        let of_field = |error| ManifestError::of_field(file, error);
        let mut pod = typed(&given).map_err(of_field)?;
        let understood = serde_json::to_value(&pod).unwrap_or_default();
        fields::all_known(&given, &understood).map_err(of_field)?;
        fields::all_supported(&given).map_err(of_field)?;
        check::check(&pod).map_err(of_field)?;
        complete(&mut pod, file, node);
        let spec = PodSpec::from_pod(&pod);
        Ok(Self {
            file: file.to_owned(),
            pod,
            spec,
        })
    }

    /// The name of the pod with its namespace: `name_namespace`, as upstream writes it.
    #[must_use]
    pub fn full_name(&self) -> String {
        let metadata = &self.pod.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        format!("{name}_{namespace}")
    }

    /// The uid of the pod.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }
}

fn yaml(contents: &str) -> Result<Value, String> {
    if contents.trim().is_empty() {
        return Err("it is empty: write the manifest of a pod".to_owned());
    }
    // JSON is YAML, too.
    let one_line = serde_saphyr::options! { with_snippet: false };
    let value: Value = serde_saphyr::from_str_with_options(contents, one_line)
        .map_err(|error| format!("it is not valid YAML: {error}"))?;
    match value {
        Value::Object(_) => Ok(value),
        _ => Err("it is not a mapping: write the manifest of a pod".to_owned()),
    }
}

fn typed(given: &Value) -> Result<Pod, FieldError> {
    for (field, wanted) in [("apiVersion", "v1"), ("kind", "Pod")] {
        if given.get(field).and_then(Value::as_str) != Some(wanted) {
            return Err(FieldError::new(field, format!("it must be {wanted}")));
        }
    }
    serde_path_to_error::deserialize(given)
        .map_err(|error| FieldError::new(error.path().to_string(), error.inner().to_string()))
}

/// Sets what upstream sets in a static pod.
fn complete(pod: &mut Pod, file: &Path, node: &str) {
    let uid = pod.metadata.uid.take().filter(|uid| !uid.is_empty());
    let uid = uid.unwrap_or_else(|| uid_of(pod, file, node));
    let name = pod.metadata.name.take().unwrap_or_default();
    pod.metadata.name = Some(format!("{name}-{}", node.to_lowercase()));
    pod.metadata
        .namespace
        .get_or_insert_with(|| "default".to_owned());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(names::CONFIG_SOURCE.to_owned(), "file".to_owned());
    annotations.insert(names::CONFIG_HASH.to_owned(), uid.clone());
    annotations.insert(names::MANIFEST_NODE.to_owned(), node.to_owned());
    pod.metadata.uid = Some(uid);
    if let Some(spec) = &mut pod.spec {
        spec.node_name = Some(node.to_owned());
    }
    pod.status = None;
}

fn uid_of(pod: &Pod, file: &Path, node: &str) -> String {
    let mut pod = pod.clone();
    let mut class = "";
    if let Some(spec) = &mut pod.spec {
        class = qos_class(spec).as_str();
        let init = spec.init_containers.iter_mut().flatten();
        for container in init.chain(&mut spec.containers) {
            let resources = container.resources.take();
            container.resources = resources.map(without_resizable);
        }
    }
    let contents = serde_json::to_string(&pod).unwrap_or_default();
    let text = format!("host:{node}file:{}class:{class}{contents}", file.display());
    // FNV-1a with 128 bits: the same in all versions of this crate.
    let hash = text.bytes().fold(
        0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128,
        |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        },
    );
    format!("{hash:032x}")
}

fn without_resizable(mut resources: ResourceRequirements) -> ResourceRequirements {
    for amounts in [&mut resources.requests, &mut resources.limits] {
        if let Some(amounts) = amounts {
            amounts.retain(|name, _| name != "cpu" && name != "memory");
        }
        if amounts.as_ref().is_some_and(BTreeMap::is_empty) {
            *amounts = None;
        }
    }
    resources
}
