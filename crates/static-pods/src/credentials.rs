//! Credentials for image pulls, from a docker config file (`{"auths": {"registry.example": {"auth": "..."}}}`).

use std::error::Error;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::serde_json::{self, Value};
use pleg_cri::v1::AuthConfig;
use pleg_kubelet::perform::Sources;

/// The docker config file of upstream's kubelet.
pub const DOCKER_CONFIG: &str = "/var/lib/kubelet/config.json";

/// A docker config file on the node. It may be missing.
#[derive(Clone, Debug)]
pub struct DockerConfig {
    /// The path of the file.
    pub file: PathBuf,
    /// If true, `imagePullSecrets` have no effect. Otherwise, pods with `imagePullSecrets` are refused.
    pub ignores_pull_secrets: bool,
}

impl Default for DockerConfig {
    fn default() -> Self {
        Self {
            file: DOCKER_CONFIG.into(),
            ignores_pull_secrets: false,
        }
    }
}

impl Sources for DockerConfig {
    /// If a pull secret cannot be found, upstream's kubelet pulls with the docker config of the node. (Since version
    /// 1.34, it rejects static pods that refer to secrets; `static_pods` runs such pods.)
    fn reads_pull_secrets(&self) -> bool {
        self.ignores_pull_secrets
    }

    async fn credentials(
        &self,
        _: &Pod,
        image: &str,
    ) -> Result<Option<AuthConfig>, Box<dyn Error + Send + Sync>> {
        let (file, image) = (self.file.clone(), image.to_owned());
        Ok(tokio::task::spawn_blocking(move || credentials(&file, &image)).await?)
    }
}

/// The credentials for an image, from the file's registry that matches the longest part of the image's name.
/// `None` if no registry matches, or the file cannot be read. Reads the file each time, because it may be replaced.
fn credentials(file: &Path, image: &str) -> Option<AuthConfig> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        text => text.map_err(|error| error.to_string()),
    };
    match text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string())) {
        Ok(config) => of_config(&config, image),
        Err(error) => {
            tracing::warn!(file = %file.display(), error, "the credentials for pulls cannot be read");
            None
        }
    }
}

fn of_config(config: &Value, image: &str) -> Option<AuthConfig> {
    let image = full_name(image);
    let registries = config.get("auths")?.as_object()?.iter();
    let matching = registries.filter(|(registry, _)| matches(registry, &image));
    let (_, found) = matching.max_by_key(|(registry, _)| address(registry).len())?;
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    Some(AuthConfig {
        username: text("username"),
        password: text("password"),
        // `auth` is `USERNAME:PASSWORD` in base64, which the runtime decodes.
        auth: text("auth"),
        identity_token: text("identitytoken"),
        registry_token: text("registrytoken"),
        ..AuthConfig::default()
    })
}

/// Docker Hub, which is also called `docker.io`.
const HUB: &str = "index.docker.io";

/// The name of the image with its registry. A name without a registry gets the registry of Docker Hub.
fn full_name(image: &str) -> String {
    match image.split_once('/') {
        Some(("docker.io", path)) => format!("{HUB}/{path}"),
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => image.to_owned(),
        _ => format!("{HUB}/{image}"),
    }
}

/// The address of a registry without the scheme and the API version.
fn address(registry: &str) -> String {
    let address = registry.trim_start_matches("https://");
    let address = address.trim_start_matches("http://").trim_end_matches('/');
    let address = address.trim_end_matches("/v1").trim_end_matches("/v2");
    match split(address) {
        ("docker.io", "") => HUB.to_owned(),
        ("docker.io", path) => format!("{HUB}/{path}"),
        _ => address.to_owned(),
    }
}

/// Returns true if the image is on the host and below the path of `registry`. `*` matches any text in one host label.
fn matches(registry: &str, image: &str) -> bool {
    let address = address(registry);
    let (host, path) = split(&address);
    let (image_host, image_path) = split(image);
    let is_part = |(pattern, part): (&str, &str)| match pattern.split_once('*') {
        Some((start, end)) => {
            let rest = part.strip_prefix(start);
            rest.is_some_and(|rest| rest.ends_with(end))
        }
        None => pattern == part,
    };
    let is_host = host.split('.').count() == image_host.split('.').count()
        && host.split('.').zip(image_host.split('.')).all(is_part);
    let rest = image_path.strip_prefix(path);
    is_host
        && rest.is_some_and(|rest| {
            path.is_empty() || rest.is_empty() || rest.starts_with(['/', ':', '@'])
        })
}

fn split(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or((name, ""))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::json;

    use super::*;

    #[test]
    fn longest_matching_registry_gives_the_credentials() {
        let config = json!({"auths": {
            "https://index.docker.io/v1/": {"auth": "hub"},
            "docker.io/own": {"auth": "own"},
            "registry.example": {"auth": "host"},
            "registry.example/team": {"auth": "team"},
            "*.cloud.example": {"auth": "any"},
            "localhost:5000": {"auth": "local"},
        }});
        for (image, auth) in [
            ("nginx", Some("hub")),
            ("library/nginx:1", Some("hub")),
            ("docker.io/nginx", Some("hub")),
            ("own/app", Some("own")),
            ("registry.example/app:1", Some("host")),
            ("registry.example/team/app@sha256:0", Some("team")),
            ("registry.example/teams/app", Some("host")),
            ("eu.cloud.example/app", Some("any")),
            ("a.eu.cloud.example/app", None),
            ("localhost:5000/app", Some("local")),
            ("other.example/app", None),
        ] {
            let found = of_config(&config, image).map(|found| found.auth);
            assert_eq!(found.as_deref(), auth, "{image}");
        }
    }

    #[test]
    fn missing_or_broken_docker_config_gives_no_credentials() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.json");
        assert_eq!(credentials(&file, "nginx"), None);
        std::fs::write(&file, "{").unwrap();
        assert_eq!(credentials(&file, "nginx"), None);
        let auths = r#"{"auths": {"docker.io": {}, "index.docker.io": {"username": "u"}}}"#;
        std::fs::write(&file, auths).unwrap();
        assert_eq!(credentials(&file, "nginx").unwrap().username, "u");
    }
}
