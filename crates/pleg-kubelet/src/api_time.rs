//! Times of the API.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use pleg::WallTime;

/// A time as the API has it, in whole seconds.
#[must_use]
pub fn api_time(at: WallTime) -> Time {
    let seconds = at.as_nanos().div_euclid(1_000_000_000);
    // Every number of nanoseconds is a valid time.
    Time(Timestamp::from_second(seconds).unwrap_or_default())
}
