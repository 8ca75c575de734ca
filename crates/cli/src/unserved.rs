//! A warning for `filch run` if no worker can take the job.

use std::time::Duration;

use filch_api::client::Client;

use crate::output::message;

/// How long a job may wait before the warning: a worker may be about to connect.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Prints once why no worker takes the job and how to fix it, if it needs a person to act. Never
/// returns: it runs next to the future that waits for the job, which also reports connection
/// errors.
pub(crate) async fn warn(client: &Client, id: &str) -> std::convert::Infallible {
    // The server answers when the job has ended, or else after this time.
    while let Ok(job) = client.wait(id, GRACE_PERIOD).await
        && job.ended_at.is_none()
        && job.worker.is_none()
    {
        let why = job.details.and_then(|details| details.why);
        let stuck = ["no-worker", "no-handler", "paused"];
        if let Some(why) = why.filter(|why| stuck.contains(&why.code.as_str())) {
            let help = why.help.map(|help| format!("; try: {help}")).unwrap_or_default();
            message(format_args!("waiting: {}{help}", why.text));
            break;
        }
    }
    std::future::pending().await
}
