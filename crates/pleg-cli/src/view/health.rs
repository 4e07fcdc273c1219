//! Health: what is wrong, since when, and what to do. The relist period and the event stream.

use super::*;

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HealthView {
    pub(crate) ready: bool,
    /// The findings with a severity above information: the worst first, each cause before what it explains.
    pub(crate) reasons: Vec<Reason>,
    pub(crate) pods: usize,
    /// Set while the runtime does not answer: the time since its last answer, which is the age of the shown data.
    pub(crate) no_answer_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) not_examined: Vec<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Reason {
    /// The code of the finding; `docs/runbook.md` has a section with this heading.
    pub(crate) code: String,
    /// The layer of the trouble: `host`, `runtime`, `pod`, `calls`, `stream`, `network` or `kubelet`.
    pub(crate) layer: String,
    /// The severity: `warning` or `critical`.
    pub(crate) severity: String,
    /// True if the node is not ready because of this reason. If false, the node is degraded.
    pub(crate) not_ready: bool,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) evidence: Vec<String>,
    pub(crate) seconds: Option<f64>,
    /// The code of the finding that explains this one and comes before it in the list.
    pub(crate) cause: Option<String>,
    pub(crate) action: String,
    /// The link to the runbook's section about the finding. Empty for `agent_silent`.
    pub(crate) runbook: String,
}

impl Reason {
    /// The reason that `pleg top` shows if its agent does not answer.
    pub(crate) fn silent_agent(error: &str, seconds: f64) -> Self {
        Self {
            code: "agent_silent".to_owned(),
            severity: lower(Severity::Critical),
            message: long(error).unwrap_or_default(),
            seconds: Some(seconds),
            action: "Check that the agent is running and listens at the address.".to_owned(),
            ..Self::default()
        }
    }
}

impl From<&Finding> for Reason {
    fn from(finding: &Finding) -> Self {
        let text = |text: &String| long(text).unwrap_or_default();
        Self {
            code: finding.code.to_owned(),
            layer: lower(finding.layer),
            severity: lower(finding.severity),
            not_ready: finding.not_ready,
            message: text(&finding.summary),
            evidence: finding.evidence.iter().map(text).collect(),
            seconds: finding.seconds,
            cause: finding.cause.map(str::to_owned),
            action: text(&finding.next),
            runbook: format!("docs/runbook.md#{}", finding.code),
        }
    }
}

impl HealthView {
    pub(super) fn new(inputs: &Inputs<'_>) -> Self {
        let picture = inputs.picture;
        let shown = picture.findings.iter();
        let shown = shown.filter(|finding| finding.severity > Severity::Info);
        // A list that fails because of an error such as `TooLarge` was answered: this alone does not make the data old.
        let unlisted = match &picture.health.list_error {
            Some(error) => !is_answer(error),
            None => picture.has("stale"),
        };
        let unanswered = unlisted || picture.has("runtime_silent");
        let unanswered = unanswered.then(|| picture.age(inputs.calls.unanswered_since));
        Self {
            ready: picture.ready.is_ok(),
            reasons: shown.map(Reason::from).collect(),
            pods: picture.problems.len(),
            no_answer_seconds: unanswered,
            not_examined: picture.facts.not_examined.clone(),
        }
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Relist {
    pub(crate) period_seconds: f64,
    /// The time since the last complete list began.
    pub(crate) last_seconds: Option<f64>,
    pub(crate) in_flight_seconds: Option<f64>,
}

impl Relist {
    pub(super) fn new(picture: &Picture) -> Self {
        let lasts = |since| picture.age(since);
        Self {
            period_seconds: picture.health.period.as_secs_f64(),
            last_seconds: picture.health.last_list.map(lasts),
            in_flight_seconds: picture.health.list_in_flight.map(lasts),
        }
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StreamView {
    /// `polling`, `starting`, `unconfirmed`, `confirmed`, `losing`, `down`, or `silent` if the runtime answers no call.
    pub(crate) state: String,
    pub(crate) seconds: Option<f64>,
    pub(crate) reason: Option<String>,
    /// The number of events since the start that the stream did not deliver.
    pub(crate) missed: u64,
    /// How many events should have arrived in the last ten minutes. `recently_missed`: how many of them did not.
    pub(crate) recently_expected: u64,
    pub(crate) recently_missed: u64,
}

impl StreamView {
    pub(super) fn new(picture: &Picture) -> Self {
        let health = &picture.health;
        let subscribed = |is_confirmed| match is_confirmed {
            _ if picture.has("runtime_silent") => "silent",
            _ if picture.has("stream_lossy") => "losing",
            true => "confirmed",
            false => "unconfirmed",
        };
        let declined = health.stream.declined().map(str::to_owned);
        let (state, since, reason) = match &health.stream {
            _ if declined.is_some() => ("polling", None, declined),
            StreamState::Off => ("polling", None, None),
            StreamState::Starting { since } => ("starting", Some(since), None),
            StreamState::Down { since, why, .. } => ("down", Some(since), Some(why.to_string())),
            StreamState::Subscribed {
                since, confirmed, ..
            } => (subscribed(*confirmed), Some(since), None),
            _ => ("unknown", None, None),
        };
        Self {
            state: state.to_owned(),
            seconds: since.map(|&since| picture.age(since)),
            reason: reason.as_deref().and_then(long),
            missed: health.missed,
            recently_expected: health.loss.expected,
            recently_missed: health.loss.missed,
        }
    }

    /// The state in words, such as `stream loses events, 3 of 10 lost in 10m`.
    pub(crate) fn text(&self) -> String {
        let lost = match self.recently_missed {
            0 => String::new(),
            n => format!(", {n} of {} lost in 10m", self.recently_expected),
        };
        match &*self.state {
            "losing" => format!("stream loses events{lost}"),
            "silent" => "stream unknown".to_owned(),
            "down" => format!("stream down{}", lasting(self.seconds)),
            "polling" => "polling, no stream".to_owned(),
            state => format!("stream {state}{lost}"),
        }
    }
}
