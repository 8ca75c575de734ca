//! How much memory a frame takes while it is read: a server reads what strangers send.
//!
//! In a process of its own, because the allocator counts for all threads.

use std::alloc::System;

use cap::Cap;
use filch_api::limits;
use filch_api::session::Arrived;

#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

/// Besides 4 times the size of the frame.
const FEW_MIB: usize = 16 << 20;

const BEGIN: &str = r#"{"worker":"00000000000000a1","session":1,"number":1,"#;

/// Reads a frame with as much memory as it may take, and aborts if that is not enough.
fn read(what: &str, text: &str) {
    assert!(text.len() <= limits::FRAME_BYTES, "{what}");
    println!("{what}: {} bytes", text.len());
    // The text is there already.
    let most = ALLOCATED.allocated() + 3 * text.len() + FEW_MIB;
    ALLOCATED.set_limit(most).expect("less is in use");
    let arrived = Arrived::read(text);
    ALLOCATED.set_limit(usize::MAX).expect("more than is in use");
    drop(arrived);
}

/// A frame with a list of as many items as fit.
fn filled(before: &str, item: &str, after: &str) -> String {
    let room = limits::FRAME_BYTES - BEGIN.len() - before.len() - item.len() - after.len();
    let list = format!("{item},").repeat(room / (item.len() + 1));
    format!("{BEGIN}{before}{list}{item}{after}")
}

fn with_messages(item: &str) -> String {
    filled(r#""messages":["#, item, "]}")
}

fn with_hello(field: &str, item: &str) -> String {
    let start = r#""messages":[{"hello":{"kind":"new","slots":1,"want":1,"#;
    filled(&format!("{start}\"{field}\":["), item, "]}}]}")
}

#[test]
fn a_frame_takes_at_most_four_times_its_size() {
    let jobs = format!("{}[1,1]", "[1,1],".repeat(100));
    let long = "x".repeat(limits::RESULT_BYTES - 2);
    let escaped = r"\u0000".repeat(limits::LOG_BYTES / 8);
    let finished = format!(r#"{{"job":[1,1],"ending":"finished","result":"{long}"}}"#);
    let logged =
        |log: &str| format!(r#"{{"report":{{"job":[1,1],"ending":"stopped","log":"{log}"}}}}"#);
    let given = r#""messages":[{"given":{"question":1,"jobs":["#;
    let output = r#"{"job":[1,1],"stream":"stdout","text":"x"}"#;
    read("the shortest messages", &with_messages(r#""drain""#));
    read("lists of jobs", &with_messages(&format!(r#"{{"finished":[{jobs}]}}"#)));
    read("one list of jobs", &filled(r#""messages":[{"finished":["#, "[1,1]", "]}]}"));
    read("jobs given away", &filled(given, "[1,1]", "]}}]}"));
    read("jobs held", &with_hello("holds", "[1,1]"));
    read("jobs started", &with_hello("started", "[1,1]"));
    read("queues", &with_hello("queues", r#""q""#));
    read("reports", &with_hello("reports", r#"{"job":[1,1],"ending":"stopped"}"#));
    read("results in a hello", &with_hello("reports", &finished));
    read("results", &with_messages(&format!(r#"{{"report":{finished}}}"#)));
    read("logs", &with_messages(&logged(&long)));
    read("escaped logs", &with_messages(&logged(&escaped)));
    read("one long log", &with_messages(&logged(&"x".repeat(15 << 20))));
    read("one long log, escaped", &with_messages(&logged(&r"\n".repeat(7 << 20))));
    read("output", &filled(r#""output":["#, output, "]}"));
    read("kinds", &filled(r#""about":{"kinds":["#, r#""k""#, "]}}"));
    read("unknown facts", &filled(r#""about":{"more":["#, "1", "]}}"));
}

#[test]
fn a_worker_with_as_many_jobs_as_it_can_own_may_list_them_all() {
    let jobs: Vec<String> = (20_000..36_384).map(|job| format!("[{job},1]")).collect();
    let jobs = jobs.join(",");
    let report = |job| format!(r#"{{"job":[{job},1],"ending":"stopped"}}"#);
    let reports: Vec<String> = (0..16_384).map(report).collect();
    let reports = reports.join(",");
    let text = format!(
        r#"{BEGIN}"messages":[{{"hello":{{"kind":"resume","slots":16384,"want":16384,
            "reports":[{reports}],"started":[{jobs}],"holds":[{jobs}]}}}},"drain"]}}"#
    );
    let arrived = Arrived::read(&text).expect("a worker may send this");
    assert_eq!(arrived.batch.messages.len(), 2);
    let many = format!("{}[1,1]", "[1,1],".repeat(limits::FRAME_ITEMS));
    for list in [format!(r#"{{"finished":[{many}]}}"#), many] {
        let error = Arrived::read(&format!(r#"{BEGIN}"messages":[{list}]}}"#));
        let error = error.expect_err("it is too long");
        assert!(error.contains("a frame has at most 65536 messages, reports and jobs"), "{error}");
    }
}
