//! The query for a view: it selects the pods, their order, and one page of them.

use super::*;

/// The maximum number of pods, and of records, in a view.
pub(crate) const MOST_ROWS: usize = 200;

/// Selects pods and records; the parameters of a URL have the same names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Query {
    /// Matches, ignoring case, a namespace/name, uid, sandbox or container id, container name or (pods only) image.
    pub(crate) search: String,
    pub(crate) namespace: String,
    pub(crate) labels: Option<Selector>,
    pub(crate) sort: Sort,
    pub(crate) reverse: bool,
    pub(crate) offset: usize,
    #[serde(default = "most")]
    pub(crate) limit: usize,
    #[serde(default = "most")]
    pub(crate) records: usize,
    /// The uid of a pod. The view then has the place of this pod among the matching pods.
    pub(crate) selected: String,
    pub(crate) pod: String,
}

/// The order of the pods. Pods that this order does not distinguish are ordered by namespace and name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Sort {
    /// Problems first, then failed containers.
    #[default]
    State,
    Name,
    Restarts,
    Change,
    /// The pods whose last read is the oldest come first.
    Freshness,
}

impl Sort {
    /// The order that follows this one when a user goes through all orders.
    pub(crate) const fn next(self) -> Self {
        use Sort::{Change, Freshness, Name, Restarts, State};
        [Name, Restarts, Change, Freshness, State][self as usize]
    }
}

impl Query {
    pub(crate) fn to_parameters(&self) -> String {
        // Texts and numbers can always be encoded.
        serde_html_form::to_string(self).unwrap_or_default()
    }

    /// Parses parameters of a URL; unknown ones are ignored. Without a limit, the page has [`MOST_ROWS`] pods.
    pub(crate) fn from_parameters(text: &str) -> Result<Self, String> {
        let mut query: Self = serde_html_form::from_str(text).map_err(|error| error.to_string())?;
        query.limit = query.limit.min(MOST_ROWS);
        query.records = query.records.min(MOST_ROWS);
        Ok(query)
    }

    pub(super) fn matches(&self, status: &PodStatus) -> bool {
        let selected = |selector: &Selector| selector.matches_pod(status) == Some(true);
        let sandboxes = status.sandboxes.iter().map(|s| s.id.as_str());
        let containers = status.containers.iter();
        let containers = containers.flat_map(|c| [&*c.name, c.id.as_str(), &*c.details.image]);
        let texts = sandboxes.chain(containers).chain([status.uid.as_str()]);
        let pod = [&*status.namespace, &*status.name];
        self.labels.as_ref().is_none_or(selected) && self.shows(pod, texts)
    }

    /// Returns true if the record matches the query. Records about the whole node always match.
    pub(super) fn matches_record(&self, record: &Record) -> bool {
        let Some(pod) = &record.pod else { return true };
        let texts = [Some(&pod.uid), record.name.as_ref(), record.id.as_ref()];
        let texts = texts.into_iter().flatten().map(String::as_str);
        self.shows([&pod.namespace, &pod.name], texts)
    }

    /// Returns true if namespace and search text match. Searches in the pod's name and in `texts`.
    fn shows<'a>(&self, pod: [&str; 2], mut texts: impl Iterator<Item = &'a str>) -> bool {
        let [namespace, _] = pod;
        let search = self.search.to_lowercase();
        let is_found = |text: &str| text.to_lowercase().contains(&search);
        (self.namespace.is_empty() || self.namespace == namespace)
            && (search.is_empty() || is_found(&pod.join("/")) || texts.any(is_found))
    }
}

const fn most() -> usize {
    MOST_ROWS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_encoded_bounded_and_checked() {
        let query = Query {
            search: "a b&c=d%25+ü\u{202e}".to_owned(),
            namespace: "shop".to_owned(),
            labels: Some("app=web,tier!=cache".parse().unwrap()),
            sort: Sort::Restarts,
            reverse: true,
            offset: 40,
            limit: 20,
            records: 0,
            selected: "uid-1".to_owned(),
            pod: "uid-2".to_owned(),
        };
        let text = query.to_parameters();
        assert!(text.is_ascii() && !text.contains(' '), "{text}");
        assert_eq!(Query::from_parameters(&text), Ok(query));
        let query = Query::from_parameters("limit=99999999&other=1&records=1000").unwrap();
        assert_eq!((query.limit, query.records), (MOST_ROWS, MOST_ROWS));
        for invalid in ["limit=x", "sort=size", "labels=%3Da", "offset=-1"] {
            assert!(Query::from_parameters(invalid).is_err(), "{invalid}");
        }
    }
}
