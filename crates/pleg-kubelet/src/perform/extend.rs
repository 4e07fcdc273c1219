//! Extension points of the performer: sources of data that is not on the node, and final changes of CRI configurations.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVar, EnvVarSource, Pod, Volume};
use pleg_cri::v1::{AuthConfig, ContainerConfig, PodSandboxConfig};

use super::BoxError;
use crate::cri_config::NodeConfig;
use crate::volumes::path_of;

type Result<T> = std::result::Result<T, BoxError>;

type Found<T> = Result<Option<T>>;

/// Provides data that is not on the node, such as the ConfigMaps and Secrets of an API server. By default, `volume`,
/// `env` and `env_from` provide nothing: the performer refuses pods and containers that need such data.
///
/// The performer waits 30 s for all volumes of a pod, all variables of a container, or the credentials of an image.
/// Then it cancels the call, and a later run tries again.
#[allow(unused_variables, reason = "the defaults ignore their arguments")]
pub trait Sources: Send + Sync + 'static {
    /// The path on the node with the contents of a volume. It is mounted as a `hostPath`, without a change of SELinux
    /// labels. `None`: the volume is not provided. Called each time before containers of the pod are created, but not
    /// for `hostPath`, `emptyDir` and `downwardAPI` volumes.
    fn volume(&self, pod: &Pod, volume: &Volume) -> impl Future<Output = Found<PathBuf>> + Send {
        async { Ok(None) }
    }

    /// The value of a variable that refers to a ConfigMap or Secret. `None`: the variable is left out.
    fn env(&self, pod: &Pod, source: &EnvVarSource) -> impl Future<Output = Found<String>> + Send {
        async { Err("config maps and secrets are not read: write the value".into()) }
    }

    /// All keys and values of a ConfigMap or Secret, as variables. The performer adds the prefix to their names.
    fn env_from(
        &self,
        pod: &Pod,
        source: &EnvFromSource,
    ) -> impl Future<Output = Result<BTreeMap<String, String>>> + Send {
        async { Err("config maps and secrets are not read: write the variables in env".into()) }
    }

    /// Returns true if [`credentials`](Self::credentials) reads `imagePullSecrets`. If not, pods with them are refused.
    fn reads_pull_secrets(&self) -> bool {
        true
    }

    /// The credentials for a pull of this image. `None`: the image is pulled without credentials.
    fn credentials(
        &self,
        pod: &Pod,
        image: &str,
    ) -> impl Future<Output = Found<AuthConfig>> + Send {
        async { Ok(None) }
    }
}

/// Changes the configurations of sandboxes and containers just before they are sent to the runtime.
#[allow(unused_variables, reason = "the defaults ignore their arguments")]
pub trait LastChanges: Send + Sync + 'static {
    /// Changes the configuration of a sandbox. Called in each run that creates the sandbox or containers in it.
    ///
    /// # Errors
    /// The reason why the pod cannot run now. A later run of the worker tries again.
    fn sandbox(&self, pod: &Pod, config: &mut PodSandboxConfig) -> Result<()> {
        Ok(())
    }

    /// Changes the configuration of a container, before `CreateContainer`.
    ///
    /// # Errors
    /// The reason why the container cannot be created now. A later run of the worker tries again.
    fn container(&self, pod: &Pod, config: &mut ContainerConfig) -> Result<()> {
        Ok(())
    }
}

/// Changes nothing, and provides nothing.
pub(super) struct Nothing;

impl LastChanges for Nothing {}

impl Sources for Nothing {
    fn reads_pull_secrets(&self) -> bool {
        false
    }
}

type Boxed<'a, T> = BoxFuture<'a, Result<T>>;

/// The time limit for a source to provide data. A pod can be stopped even if a source hangs.
const SOURCES_WITHIN: Duration = Duration::from_secs(30);

/// [`Sources`] as a trait object.
pub(super) trait AnySources: Send + Sync {
    fn reads_pull_secrets(&self) -> bool;
    fn with_volumes<'a>(&'a self, pod: &'a Pod, node: &'a NodeConfig) -> Boxed<'a, Pod>;
    fn with_env<'a>(&'a self, pod: &'a Pod, container: &'a Container) -> Boxed<'a, Container>;
    fn credentials<'a>(&'a self, pod: &'a Pod, image: &'a str) -> Boxed<'a, Option<AuthConfig>>;
}

impl<S: Sources> AnySources for S {
    fn reads_pull_secrets(&self) -> bool {
        Sources::reads_pull_secrets(self)
    }

    /// Returns the pod with provided volumes as `hostPath`. Secrets, ConfigMaps and projected volumes are read-only.
    fn with_volumes<'a>(&'a self, pod: &'a Pod, node: &'a NodeConfig) -> Boxed<'a, Pod> {
        within(async move {
            let mut with = pod.clone();
            let spec = with.spec.get_or_insert_default();
            let mut read_only = BTreeSet::new();
            for volume in spec.volumes.iter_mut().flatten() {
                if !matches!(path_of(volume, pod, node), Ok(None)) {
                    continue;
                }
                let Some(path) = self.volume(pod, volume).await? else {
                    continue;
                };
                let is_config = volume.secret.is_some() || volume.config_map.is_some();
                if is_config || volume.projected.is_some() {
                    read_only.insert(volume.name.clone());
                }
                volume.name = std::mem::take(volume).name;
                volume.host_path.get_or_insert_default().path = path.display().to_string();
            }
            let init = spec.init_containers.iter_mut().flatten();
            let containers = init.chain(&mut spec.containers);
            let mounts = containers.flat_map(|c| c.volume_mounts.iter_mut().flatten());
            for mount in mounts.filter(|mount| read_only.contains(&mount.name)) {
                mount.read_only = Some(true);
            }
            Ok(with)
        })
    }

    /// Returns the container with its environment variables from these `Sources`. Escapes `$` in the values.
    fn with_env<'a>(&'a self, pod: &'a Pod, container: &'a Container) -> Boxed<'a, Container> {
        within(async move {
            let mut env = Vec::new();
            for source in container.env_from.iter().flatten() {
                let prefix = source.prefix.as_deref().unwrap_or_default();
                let given = self.env_from(pod, source).await;
                for (name, value) in given.map_err(|error| format!("envFrom: {error}"))? {
                    env.push(literal(&format!("{prefix}{name}"), &value));
                }
            }
            for variable in container.env.iter().flatten() {
                match &variable.value_from {
                    Some(from)
                        if from.config_map_key_ref.is_some() || from.secret_key_ref.is_some() =>
                    {
                        let (name, value) = (&variable.name, self.env(pod, from).await);
                        let value = value.map_err(|error| format!("env {name}: {error}"))?;
                        env.extend(value.map(|value| literal(name, &value)));
                    }
                    _ => env.push(variable.clone()),
                }
            }
            let mut with = container.clone();
            (with.env, with.env_from) = (Some(env), None);
            Ok(with)
        })
    }

    fn credentials<'a>(&'a self, pod: &'a Pod, image: &'a str) -> Boxed<'a, Option<AuthConfig>> {
        within(Sources::credentials(self, pod, image))
    }
}

/// Completes with the answer of the source, or fails if the source does not answer in time.
fn within<'a, T>(answer: impl Future<Output = Result<T>> + Send + 'a) -> Boxed<'a, T> {
    Box::pin(async {
        let answer = tokio::time::timeout(SOURCES_WITHIN, answer).await;
        answer.unwrap_or_else(|_| Err(format!("no answer within {SOURCES_WITHIN:?}").into()))
    })
}

fn literal(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.replace('$', "$$")),
        value_from: None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{Value, from_value, json, to_value};

    use super::*;

    struct Objects;

    impl Sources for Objects {
        async fn volume(&self, _: &Pod, volume: &Volume) -> Result<Option<PathBuf>> {
            if volume.name == "hangs" {
                std::future::pending::<()>().await;
            }
            let is_secret = volume.secret.is_some();
            Ok(is_secret.then(|| format!("/secrets/{}", volume.name).into()))
        }

        async fn env(&self, _: &Pod, source: &EnvVarSource) -> Result<Option<String>> {
            let key = source.secret_key_ref.as_ref().map(|r| r.key.clone());
            Ok(key.filter(|key| key != "absent"))
        }

        async fn env_from(&self, _: &Pod, _: &EnvFromSource) -> Result<BTreeMap<String, String>> {
            Ok(BTreeMap::from([("A".to_owned(), "$(B)".to_owned())]))
        }
    }

    /// The specification with the volumes that `Objects` provides.
    async fn with_volumes(mut spec: Value) -> Result<Value> {
        spec["containers"][0]["name"] = json!("a");
        let pod: Pod = from_value(json!({"spec": spec})).unwrap();
        let node = NodeConfig::of_host("/r".as_ref(), Vec::new());
        let with = Objects.with_volumes(&pod, &node).await?;
        Ok(to_value(&with.spec)?)
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_source_fails_after_thirty_seconds() {
        let volumes = json!([{"name": "hangs", "secret": {}}]);
        let error = with_volumes(json!({"containers": [{}], "volumes": volumes})).await;
        assert_eq!(error.unwrap_err().to_string(), "no answer within 30s");
    }

    #[tokio::test]
    async fn provided_volumes_become_host_paths_and_others_stay() {
        let volumes = json!([
            {"name": "s", "secret": {"secretName": "x"}},
            {"name": "c", "configMap": {"name": "x"}},
            {"name": "e", "emptyDir": {}},
        ]);
        let mount = json!({"name": "s", "mountPath": "/s"});
        let containers = json!([{"volumeMounts": [mount]}]);
        let spec = json!({"containers": containers, "volumes": volumes});
        let with = with_volumes(spec).await.unwrap();
        let mount = &with["containers"][0]["volumeMounts"][0];
        assert_eq!(mount["readOnly"], true, "a secret");
        let provided = json!({"name": "s", "hostPath": {"path": "/secrets/s"}});
        assert_eq!(with["volumes"], json!([provided, volumes[1], volumes[2]]));
    }

    #[tokio::test]
    async fn variables_from_sources_are_escaped_and_env_from_comes_first() {
        let secret = |name, key| {
            let key = json!({"name": "x", "key": key});
            json!({"name": name, "valueFrom": {"secretKeyRef": key}})
        };
        let field = json!({"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
        let container: Container = from_value(json!({
            "name": "c",
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "x"}}],
            "env": [secret("S", "a$b"), secret("O", "absent"), field],
        }))
        .unwrap();
        let with = Objects.with_env(&Pod::default(), &container).await;
        let from = json!({"name": "P_A", "value": "$$(B)"});
        let expected = json!([from, {"name": "S", "value": "a$$b"}, field]);
        let with = with.unwrap();
        assert_eq!(to_value(with.env).unwrap(), expected);
        assert_eq!(with.env_from, None);
    }
}
