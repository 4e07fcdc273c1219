//! The hosts file of a pod, as upstream's kubelet makes it for every runtime.
//!
//! containerd mounts the node's own file into each container by itself. CRI-O does so only in pods on the host network,
//! so in other pods, `localhost` would not resolve without this file.

use std::fmt::Write as _;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;

use crate::cri_config::host_name_of;
use crate::spec::spec_of;

const LOCAL: &str = "\
# This file is made for the pod. Changes are lost.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
";

/// The text of the file. `ips`: the addresses of the pod. `of_node`: the text of the node's own hosts file, with which
/// the file of a pod on the host network begins.
pub(crate) fn hosts(pod: &Pod, ips: &[IpAddr], of_node: &str) -> String {
    let spec = spec_of(pod);
    let mut text = match spec.host_network {
        Some(true) => format!("{}\n", of_node.trim_end()),
        _ => {
            let own = |ip| format!("{ip}\t{}\n", host_name_of(pod));
            LOCAL.to_owned() + &ips.iter().map(own).collect::<String>()
        }
    };
    for alias in spec.host_aliases.iter().flatten() {
        let names = alias.hostnames.as_deref().unwrap_or_default();
        _ = writeln!(text, "{}\t{}", alias.ip, names.join("\t"));
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{self, json};

    use super::*;

    #[test]
    fn hosts_file_has_aliases_after_names_of_pod_or_node() {
        let of_node = "127.0.0.1 localhost\n10.0.0.1 node\n";
        for (on_host, own) in [
            (false, format!("{LOCAL}10.0.0.7\tw\n")),
            (true, of_node.to_owned()),
        ] {
            let aliases = json!([{"ip": "10.1.1.1", "hostnames": ["db", "db.local"]}]);
            let pod = json!({"spec": {
                "containers": [], "hostname": "w", "hostNetwork": on_host, "hostAliases": aliases,
            }});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let text = hosts(&pod, &[[10, 0, 0, 7].into()], of_node);
            assert_eq!(text, own + "10.1.1.1\tdb\tdb.local\n");
        }
    }
}
