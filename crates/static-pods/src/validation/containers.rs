//! Names, images and policies of containers.

use k8s_openapi::api::core::v1::PodSpec;

use super::texts::{ABSOLUTE, IMAGE, LABEL};
use super::{Allowed, Each, Errors, Rule, containers};

pub(super) const RULES: &[Rule] = &[
    ("spec.@.image", Allowed::Is(&IMAGE)),
    (
        "spec.@.imagePullPolicy",
        Allowed::OneOf(&["Always", "IfNotPresent", "Never"]),
    ),
    ("spec.@.name", Allowed::Is(&LABEL)),
    (
        "spec.@.resizePolicy.resourceName",
        Allowed::OneOf(&["cpu", "memory"]),
    ),
    (
        "spec.@.resizePolicy.restartPolicy",
        Allowed::OneOf(&["NotRequired", "RestartContainer"]),
    ),
    (
        "spec.@.restartPolicy",
        Allowed::OneOf(&["Always", "OnFailure", "Never"]),
    ),
    (
        "spec.@.restartPolicyRules.action",
        Allowed::OneOf(&["Restart", "RestartAllContainers"]),
    ),
    (
        "spec.@.restartPolicyRules.exitCodes.operator",
        Allowed::OneOf(&["In", "NotIn"]),
    ),
    (
        "spec.@.terminationMessagePath",
        Allowed::IsOrEmpty(&ABSOLUTE),
    ),
    (
        "spec.@.terminationMessagePolicy",
        Allowed::OneOf(&["File", "FallbackToLogsOnError"]),
    ),
];

pub(super) fn check_names(spec: &PodSpec, errors: &mut Errors) {
    let names = containers(spec).map(|each| (format!("{}.name", each.path), &each.container.name));
    errors.unique(names, |name| {
        format!("another container is named {name:?}: rename one")
    });
}

pub(super) fn check(each: &Each<'_>, errors: &mut Errors) {
    let (path, container) = (&each.path, each.container);
    if container.image.as_deref().unwrap_or_default().is_empty() {
        errors.add(format!("{path}.image"), "it is missing: write an image");
    }
    if container.restart_policy_rules.is_some() && container.restart_policy.is_none() {
        let problem = "rules add to a restartPolicy of the container: write one";
        errors.add(format!("{path}.restartPolicyRules"), problem);
    }
    let policies = container.resize_policy.iter().flatten().enumerate();
    let resources = policies.map(|(at, policy)| {
        let field = format!("{path}.resizePolicy[{at}].resourceName");
        (field, &policy.resource_name)
    });
    errors.unique(resources, |name| {
        format!("another resize policy is for {name:?}: remove one")
    });
    if each.plain_init && container.resize_policy.iter().flatten().next().is_some() {
        let problem = "init containers are not resized: remove it";
        errors.add(format!("{path}.resizePolicy"), problem);
    }
}
