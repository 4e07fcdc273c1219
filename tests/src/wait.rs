//! Waits for conditions, so that tests need not sleep.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

/// The time between two checks of a condition.
const LOOK: Duration = Duration::from_millis(20);

/// Waits until `look` returns a value. Fails after the time `within`.
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

/// Waits until `look` returns `Ok`. Fails after the time `within`.
pub async fn until_ok<E, F>(
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

/// Waits for the whole duration. To wait for a condition, use [`until`] instead.
pub async fn pass_time(span: Duration) {
    if !span.is_zero() {
        let mut ticks = tokio::time::interval(span);
        ticks.tick().await;
        ticks.tick().await;
    }
}
