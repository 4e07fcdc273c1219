//! Waiting for conditions: tests never sleep and hope.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Waits until `look` gives a value, for `within` at most.
///
/// # Errors
/// If it does not come in time; `what` says what was awaited.
pub async fn until<T, F>(
    within: Duration,
    what: &str,
    mut look: impl FnMut() -> F,
) -> anyhow::Result<T>
where
    F: Future<Output = Option<T>>,
{
    let mut again = tokio::time::interval(LOOK);
    let looking = async {
        loop {
            again.tick().await;
            if let Some(value) = look().await {
                return value;
            }
        }
    };
    match tokio::time::timeout(within, looking).await {
        Ok(value) => Ok(value),
        Err(_) => anyhow::bail!("not within {within:?}: {what}"),
    }
}

/// Waits until `look` finds nothing wrong, for `within` at most.
///
/// # Errors
/// What it found last, if that does not happen in time.
pub async fn until_right<E, F>(
    within: Duration,
    what: &str,
    mut look: impl FnMut() -> F,
) -> anyhow::Result<()>
where
    E: Debug,
    F: Future<Output = Result<(), E>>,
{
    let last = std::sync::Mutex::new(None);
    let outcome = until(within, what, || {
        let looking = look();
        let last = &last;
        async move {
            match looking.await {
                Ok(()) => Some(()),
                Err(wrong) => {
                    if let Ok(mut last) = last.lock() {
                        *last = Some(wrong);
                    }
                    None
                }
            }
        }
    })
    .await;
    let last = last.into_inner().ok().flatten();
    outcome.map_err(|e| anyhow::anyhow!("{e}: {last:#?}"))
}

/// Time during which things simply go on, where the test is about how long something lasts.
pub async fn let_pass(span: Duration) {
    let mut ticks = tokio::time::interval(span);
    ticks.tick().await;
    ticks.tick().await;
}
