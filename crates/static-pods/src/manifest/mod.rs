//! Manifests of static pods: a `v1.Pod` in a file, as YAML or JSON.

mod defaults;
mod directory;
mod fields;
mod source;
mod yaml;

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::serde_json::{self, Value};

use crate::validation::validate;
use pleg_kubelet::cri_config::FieldError;
use pleg_kubelet::names;
use pleg_kubelet::pod_status::qos_class;
use pleg_kubelet::unsupported;

pub(crate) use defaults::set_defaults;
pub use directory::{Changes, Manifests, ReadManifests, read_directory};
pub use source::ManifestSource;

/// Annotation: the uid of a static pod, which is the hash of its manifest unless the manifest gives a uid.
const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Annotation that this kubelet sets on pods that it made from manifests, and on their sandboxes: the name of the node.
/// Static pods of other kubelets do not have this annotation.
pub(crate) const MANIFEST_NODE: &str = "pleg/manifest-node";

/// A static pod that this kubelet can run, with the file that it comes from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Manifest {
    /// The file from which the manifest was read.
    pub file: PathBuf,
    /// The pod. Its uid and its namespace are set, and its name ends with the name of the node.
    pub pod: Pod,
    /// Paths of ignored fields: the file has them, but the API does not.
    pub ignored: Vec<String>,
}

/// The error of a manifest that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{}: {}{problem}", file.display(), field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default())]
pub struct ManifestError {
    /// The file.
    pub file: PathBuf,
    /// The field that is wrong. `None` if the file as a whole is wrong.
    pub field: Option<String>,
    /// The problem, and what to do.
    pub problem: String,
}

impl ManifestError {
    /// An error about a field of a file. An empty `field` means the whole file.
    fn new(file: &Path, field: String, problem: String) -> Self {
        Self {
            file: file.to_owned(),
            field: Some(field).filter(|field| !field.is_empty()),
            problem,
        }
    }
}

impl Manifest {
    /// Parses the contents of a file: one pod, or several with `---` between them. (Upstream accepts only one.)
    ///
    /// The name of a pod gets the name of the node as its suffix, as in upstream. Unless the manifest gives a uid, the
    /// uid of the pod is a hash of the node's name, the file's name and the pod: a changed manifest is another pod.
    /// Unlike upstream's, the hash leaves out the amounts of CPU and memory, which can be changed while the pod runs.
    /// It includes the quality-of-service class, which follows from the resources but must not change in a running pod.
    ///
    /// Returns one error if the file does not consist of YAML mappings; otherwise the first error of each document: it
    /// is no pod, a field needs an API server, [`validate`] rejects a value, a field is [`unsupported`], or the name is
    /// too long. Unknown fields are errors if `strict` is true; otherwise [`Manifest::ignored`] has their paths.
    pub fn parse_all(file: &Path, contents: &str, node: &str, strict: bool) -> ReadManifests {
        let documents = match yaml::mappings(contents) {
            Ok(documents) => documents,
            Err(problem) => return vec![Err(ManifestError::new(file, String::new(), problem))],
        };
        let several = documents.len() > 1;
        let documents = documents.into_iter().enumerate();
        let read = documents.map(|(at, given)| {
            let mut read = Self::of_document(file, given, node, strict);
            if let Some(field) = read.as_mut().err().and_then(|error| error.field.as_mut())
                && several
            {
                *field = format!("document {}: {field}", at + 1);
            }
            read
        });
        read.collect()
    }

    fn of_document(
        file: &Path,
        mut given: Value,
        node: &str,
        strict: bool,
    ) -> Result<Self, ManifestError> {
        fields::quantities_as_text(&mut given);
        let of_field = |error: FieldError| ManifestError::new(file, error.field, error.problem);
        let mut pod = yaml::pod(&given).map_err(of_field)?;
        let understood = serde_json::to_value(&pod).unwrap_or_default();
        let ignored = fields::unknown(&given, &understood);
        if let Some(field) = ignored.first().filter(|_| strict) {
            let problem = "there is no such field: check its name and its indentation";
            return Err(of_field(FieldError::new(field, problem)));
        }
        fields::no_references(&understood).map_err(of_field)?;
        // Pull secrets are ignored (see `DockerConfig`), and admission rejects pods with devices and huge pages.
        let is_refused = |error: &FieldError| {
            error.field != "spec.imagePullSecrets" && !error.field.contains(".resources.limits.")
        };
        let refused = unsupported(&pod).into_iter().filter(is_refused);
        let wrong = validate(&pod).into_iter().chain(refused).next();
        wrong.map_or(Ok(()), Err).map_err(of_field)?;
        complete(&mut pod, file, node);
        set_defaults(&mut pod);
        full_name_fits(&pod).map_err(of_field)?;
        Ok(Self {
            file: file.to_owned(),
            pod,
            ignored,
        })
    }

    /// The name and the namespace of the pod as `name_namespace`, the form in which upstream writes it.
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

/// Sets the fields that upstream's kubelet sets in each static pod.
fn complete(pod: &mut Pod, file: &Path, node: &str) {
    let uid = pod.metadata.uid.take().filter(|uid| !uid.is_empty());
    let uid = uid.unwrap_or_else(|| uid_of(pod, file, node));
    let name = pod.metadata.name.take().unwrap_or_default();
    pod.metadata.name = Some(format!("{name}-{}", node.to_lowercase()));
    let namespace = pod.metadata.namespace.take().filter(|n| !n.is_empty());
    pod.metadata.namespace = Some(namespace.unwrap_or_else(|| "default".to_owned()));
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(names::CONFIG_SOURCE.to_owned(), "file".to_owned());
    annotations.insert(CONFIG_HASH.to_owned(), uid.clone());
    annotations.insert(MANIFEST_NODE.to_owned(), node.to_owned());
    pod.metadata.uid = Some(uid);
    if let Some(spec) = &mut pod.spec {
        spec.node_name = Some(node.to_owned());
    }
    pod.status = None;
}

/// Checks the length of the pod's name, which ends with the name of the node.
fn full_name_fits(pod: &Pod) -> Result<(), FieldError> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    if name.len() <= 253 {
        return Ok(());
    }
    let length = name.len();
    let problem = format!(
        "{name:?}, with the name of the node, has {length} characters: shorten it, 253 are allowed"
    );
    Err(FieldError::new("metadata.name", problem))
}

fn uid_of(pod: &Pod, file: &Path, node: &str) -> String {
    let mut pod = pod.clone();
    let mut class = "";
    if let Some(spec) = &mut pod.spec {
        class = qos_class(spec);
        let init = spec.init_containers.iter_mut().flatten();
        for container in init.chain(&mut spec.containers) {
            let resources = container.resources.take();
            container.resources = resources.map(without_resizable);
        }
    }
    let contents = serde_json::to_string(&pod).unwrap_or_default();
    let text = format!("host:{node}file:{}class:{class}{contents}", file.display());
    // The uid must not change with the version of this crate, so the hash is FNV-1a with 128 bits.
    let hash = text.bytes().fold(
        0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128,
        |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        },
    );
    format!("{hash:032x}")
}

/// Clears the amounts of CPU and memory, which can be changed while the pod runs. The names `cpu` and `memory` stay in
/// the hash, because a runtime cannot remove a limit from a running container.
fn without_resizable(mut resources: ResourceRequirements) -> ResourceRequirements {
    for amounts in [&mut resources.requests, &mut resources.limits] {
        for (name, amount) in amounts.iter_mut().flatten() {
            if name == "cpu" || name == "memory" {
                *amount = Quantity::default();
            }
        }
    }
    resources
}
