//! A job that somebody sits and waits for, and that nobody takes: they are told so, once.

use std::time::Duration;

use filch_api::client::Client;

use crate::output::message;

/// So long a job may wait before it is asked why: whoever would take it may be about to come.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Says why the job is not taken and what would change it, if that takes somebody to act. Goes on for
/// ever: it is meant to run beside what waits for the job, which also finds out what is wrong with the
/// way to the server.
pub(crate) async fn warn(client: &Client, id: &str) -> std::convert::Infallible {
    // Answered when the job has ended, or else after this time.
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
