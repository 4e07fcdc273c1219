//! Updates for a client that has an earlier view. An age is sent as a moment, the time when the age was zero: moments
//! do not change. Only fields that differ are sent, as a JSON merge patch (RFC 7386).

use std::mem::take;

use serde_json::{Map, Value, json};

use super::View;
use crate::picture::finding::contains;

/// The fields with ages, which grow each second. `lastSeconds` is sent as the moment `lastAt`, and `seconds` as `at`.
const AGES: &str = "seconds lastSeconds inFlightSeconds noAnswerSeconds changedSeconds freshSeconds problemSeconds \
                    inspectedSeconds";
/// In these parts of a view, the field `seconds` is no age.
const TIMELESS: [&str; 3] = ["cost", "feed", "history"];
/// Moments that differ by less than this many seconds count as equal: most are wall-clock time minus a monotonic age.
const SAME: f64 = 0.5;

/// The view as `/debug/live` sends it: moments instead of ages, pods by uid without containers, latencies by interval.
pub(crate) fn with_moments(view: &View) -> Value {
    let now: Result<jiff::Timestamp, _> = view.time.parse();
    let now = now.map_or(0.0, |time| time.as_millisecond() as f64 / 1e3);
    let mut sent = json!(view);
    // `/debug/live` sends records in messages of their own.
    sent["feed"]["records"].take();
    to_moments(&mut sent, now);
    let listed = sent["relist"]["lastAt"].as_f64();
    let page = &mut sent["pods"];
    let mut rows = Map::new();
    let mut order = Vec::new();
    for mut row in page["rows"].as_array_mut().map(take).unwrap_or_default() {
        let uid = row["pod"]["uid"].as_str().unwrap_or_default().to_owned();
        if let Value::Object(fields) = &mut row {
            fields.remove("containers");
            let fresh = fields.get("freshAt").and_then(Value::as_f64);
            if let (Some(fresh), Some(listed)) = (fresh, listed)
                && (fresh - listed).abs() < SAME
            {
                // For a row from the last list, `isListed` replaces `freshAt`, which would change with each list.
                fields.remove("freshAt");
                fields.insert("isListed".to_owned(), Value::Bool(true));
            }
        }
        order.push(uid.clone());
        rows.insert(uid, row);
    }
    (page["rows"], page["order"]) = (Value::Object(rows), json!(order));
    for series in ["lists", "reads", "events"] {
        let points = sent["latency"][series].take();
        let points = points.as_array().map(Vec::as_slice).unwrap_or_default();
        let numbered = (0..=view.latency.interval).rev().zip(points.iter().rev());
        let measured = numbered.filter(|(_, point)| point["count"] != 0);
        sent["latency"][series] = measured.map(|(n, p)| (n.to_string(), p.clone())).collect();
    }
    sent
}

fn to_moments(value: &mut Value, now: f64) {
    match value {
        Value::Object(fields) => {
            for (key, mut value) in take(fields) {
                let age = value.as_f64().filter(|_| contains(AGES, &key));
                let stem = key.strip_suffix("Seconds");
                let field = match age {
                    Some(age) => {
                        value = json!(((now - age) * 1e3).round() / 1e3);
                        stem.map_or("at".to_owned(), |stem| format!("{stem}At"))
                    }
                    None => {
                        if !TIMELESS.contains(&&*key) {
                            to_moments(&mut value, now);
                        }
                        key
                    }
                };
                fields.insert(field, value);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| to_moments(value, now)),
        _ => {}
    }
}

/// The patch from `old` to `new`; `None` if they are equal. A moment in `new` that counts as equal gets the old value.
pub(crate) fn difference(old: &Value, new: &mut Value) -> Option<Value> {
    if let (Value::Array(old), Value::Array(new)) = (old, &mut *new) {
        // An array is sent as a whole if it differs. First, moments that count as equal get the old value.
        for (old, new) in old.iter().zip(new) {
            difference(old, new);
        }
    }
    let (Value::Object(old), Value::Object(new)) = (old, &mut *new) else {
        return (old != new).then(|| new.clone());
    };
    let removed = old.keys().filter(|key| !new.contains_key(*key));
    let mut changed: Map<_, _> = removed.map(|key| (key.clone(), Value::Null)).collect();
    for (key, value) in new {
        let patch = match old.get(key) {
            None => Some(value.clone()),
            Some(old) if is_same_moment(key, old, value) => {
                *value = old.clone();
                None
            }
            Some(old) => difference(old, value),
        };
        changed.extend(patch.map(|patch| (key.clone(), patch)));
    }
    (!changed.is_empty()).then_some(Value::Object(changed))
}

fn is_same_moment(key: &str, old: &Value, new: &Value) -> bool {
    let moments = old.as_f64().zip(new.as_f64());
    (key == "at" || key.ends_with("At")) && moments.is_some_and(|(a, b)| (a - b).abs() < SAME)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pleg::core::PodView;

    use super::*;
    use crate::view::tests::{Sample, all};

    /// The view `seconds` later, and the patch for a client that has the earlier view.
    fn later(node: &mut Sample, seconds: f64, change: impl FnOnce(&mut Sample)) -> (Value, Value) {
        let query = all("uid-web-1");
        let old = with_moments(&node.view(&query));
        node.now = node.now.after(Duration::from_secs_f64(seconds));
        node.wall = node.wall.after(Duration::from_secs_f64(seconds + 0.01));
        change(node);
        let mut new = with_moments(&node.view(&query));
        let patch = difference(&old, &mut new).unwrap();
        (new, patch)
    }

    fn only_row<'a>(patch: &'a Value, uid: &str) -> &'a Map<String, Value> {
        let rows = patch["pods"]["rows"].as_object().unwrap();
        assert_eq!(rows.keys().collect::<Vec<_>>(), [uid]);
        rows[uid].as_object().unwrap()
    }

    #[test]
    fn patch_has_only_time_and_cost_and_the_changed_row() {
        let mut sample = Sample::new();
        let (view, patch) = later(&mut sample, 1.0, |_| ());
        let mut fields: Vec<_> = patch.as_object().unwrap().keys().collect();
        fields.sort();
        assert_eq!(fields, ["cost", "time"], "{patch}");
        assert_eq!(view["pods"]["order"][0], "uid-dns");
        let dns = &view["pods"]["rows"]["uid-dns"];
        assert_eq!(dns["changedAt"], 1_700_000_095.0);
        assert_eq!(view["latency"]["lists"].as_object().unwrap().len(), 1);
        let (_, patch) = later(&mut sample, 1.0, |sample| sample.hang("web-1"));
        let row = only_row(&patch, "uid-web-1");
        assert_eq!(row["state"], "Hung");
        assert_eq!(row.get("restarts"), None, "unchanged");
        // A new list alone changes no row. A removed field is sent as null.
        let (_, patch) = later(&mut sample, 10.0, |sample| {
            sample.problems.clear();
            sample.health.last_list = Some(sample.now);
            for pod in &mut sample.pods {
                let (status, read) = (pod.status.clone(), Some(sample.now));
                *pod = PodView::new(status, read, pod.details_as_of);
            }
        });
        let row = only_row(&patch, "uid-web-1");
        assert_eq!(row.get("problemAt"), Some(&Value::Null), "{patch}");
    }
}
