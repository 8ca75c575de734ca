//! The audit trail: who did what, and when.

use std::sync::Arc;

use filch_store::{OwnerNote, Sqlite};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Answer, LEASE, Place, eventually, read};

async fn send(place: &Place, by: &str, method: Method, path: &str, body: &Value) -> Answer {
    let request = place.request(method, path).bearer_auth(by);
    read(request.json(body).send().await.unwrap()).await
}

async fn get(place: &Place, by: &str, path: &str) -> Value {
    read(place.request(Method::GET, path).bearer_auth(by).send().await.unwrap()).await.ok()
}

/// Makes a token; its secret, and its name in the audit trail.
async fn token(place: &Place, by: Option<&str>, wanted: Value) -> (String, String) {
    let mut request = place.request(Method::POST, "/v1/tokens").json(&wanted);
    if let Some(by) = by {
        request = request.bearer_auth(by);
    }
    let made = read(request.send().await.unwrap()).await.ok();
    let id = made["token"]["id"].as_str().unwrap();
    let name = wanted["name"].as_str().unwrap();
    (made["secret"].as_str().unwrap().to_owned(), format!("{name} ({id})"))
}

/// What is in the audit trail for this client, the oldest first: who, what, about what, to what.
async fn trail(place: &Place, by: &str) -> Vec<[String; 4]> {
    let acts = get(place, by, "/v1/acts").await["acts"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let about = |act: &Value| {
        let fields = ["job", "worker", "token", "queue"].map(|field| &act[field]);
        fields.into_iter().find(|value| value.is_string()).map_or("-".to_owned(), text)
    };
    let line = |act: &Value| [text(&act["by"]), text(&act["act"]), about(act), text(&act["to"])];
    acts.iter().rev().map(line).collect()
}

#[tokio::test]
async fn who_did_what_is_kept_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("filch.db");
    let open = || Arc::new(Sqlite::open(&file, &OwnerNote::this_process()).unwrap());
    let place = Place::with(open(), LEASE, None).await;
    let (admin, ada) = token(&place, None, json!({"role": "admin", "name": "Ada"})).await;
    let wanted = json!({"role": "operate", "queues": ["mail"], "name": "Olga"});
    let (operator, olga) = token(&place, Some(&admin), wanted).await;
    let submit = async |queue: &str| {
        let job = json!({"kind": "k", "queue": queue});
        let job = send(&place, &admin, Method::POST, "/v1/jobs", &job).await.ok();
        job["id"].as_str().unwrap().to_owned()
    };
    let (mail, other) = (submit("mail").await, submit("other").await);
    let act = async |by: &str, method, path: &str, body: Value| {
        send(&place, by, method, path, &body).await.ok();
    };
    act(&operator, Method::PATCH, "/v1/queues/mail", json!({"paused": true, "limit": 3})).await;
    act(&operator, Method::PUT, &format!("/v1/jobs/{mail}/priority"), json!({"priority": 7})).await;
    act(&operator, Method::POST, &format!("/v1/jobs/{mail}/cancel"), json!({})).await;
    act(&admin, Method::POST, &format!("/v1/jobs/{other}/cancel"), json!({})).await;
    act(&admin, Method::PUT, "/v1/strategy", json!({"strategy": "fair"})).await;
    let id = olga.rsplit_once('(').unwrap().1.trim_end_matches(')').to_owned();
    let first = ada.rsplit_once('(').unwrap().1.trim_end_matches(')').to_owned();
    // What changes nothing is not recorded.
    let again = format!("/v1/jobs/{mail}/cancel");
    send(&place, &operator, Method::POST, &again, &json!({})).await.ok();
    send(&place, &operator, Method::PATCH, "/v1/queues/mail", &json!({"limit": 3})).await.ok();

    let line = |by: &str, act: &str, about: &str, to: &str| [by, act, about, to].map(str::to_owned);
    let own = [
        line(&olga, "paused", "mail", "-"),
        line(&olga, "limited", "mail", "3"),
        line(&olga, "prioritised", &mail, "7"),
        line(&olga, "cancelled", &mail, "-"),
    ];
    assert_eq!(trail(&place, &operator).await, own, "only what is about its queues");
    let shown = get(&place, &operator, &format!("/v1/jobs/{mail}")).await;
    let acts: Vec<&Value> = shown["acts"].as_array().unwrap().iter().collect();
    assert!(acts.len() == 2 && acts.iter().all(|act| act["by"] == olga), "{shown}");
    let queue = get(&place, &operator, "/v1/queues/mail").await;
    assert_eq!(
        (&queue["acts"][0]["act"], &queue["acts"][0]["by"]),
        (&json!("limited"), &json!(olga))
    );
    assert_eq!(queue["acts"].as_array().map(Vec::len), Some(2), "{queue}");

    act(&admin, Method::POST, &format!("/v1/tokens/{id}/revoke"), json!({})).await;
    let mut all =
        vec![line("-", "token-created", &first, "-"), line(&ada, "token-created", &id, "-")];
    all.extend(own);
    all.push(line(&ada, "cancelled", &other, "-"));
    all.push(line(&ada, "strategy", "-", "fair"));
    all.push(line(&ada, "token-revoked", &id, "-"));
    assert_eq!(trail(&place, &admin).await, all);

    // Pages.
    let page = get(&place, &admin, "/v1/acts?limit=2").await;
    assert_eq!(page["acts"][0]["act"], "token-revoked");
    let next = page["next"].as_u64().unwrap();
    let page = get(&place, &admin, &format!("/v1/acts?limit=2&before={next}")).await;
    assert_eq!(page["acts"][0]["job"], *other);

    place.server.stop().await;
    drop(place);
    // The last request may still hold the file for a moment.
    let is_free = async || Sqlite::open(&file, &OwnerNote::this_process()).is_ok();
    eventually("the file is let go of", is_free).await;
    let place = Place::with(open(), LEASE, None).await;
    assert_eq!(trail(&place, &admin).await, all, "after a restart");
}

/// Retries and drains are in the trail like other acts, each with the name of its token.
#[tokio::test]
async fn retries_and_drains_are_recorded_by_name() {
    let place = Place::start().await;
    let (admin, ada) = token(&place, None, json!({"role": "admin", "name": "Ada"})).await;
    let job = json!({"kind": "k", "retry": 1});
    let job = send(&place, &admin, Method::POST, "/v1/jobs", &job).await.ok();
    let id = job["id"].as_str().unwrap();
    let work = async |verb: &str, body: Value| {
        let path = format!("/v1/work/00000000000000a1/{verb}");
        send(&place, &admin, Method::POST, &path, &body).await.ok()
    };
    let claim = json!({"instance": "i", "number": 1, "slots": 1, "wait": "60s"});
    let hold = work("claim", claim).await["jobs"][0]["job"].clone();
    let report = json!({"job": hold, "ending": "failed", "error": "no such invoice"});
    work("report", json!({"instance": "i", "reports": [report]})).await;
    send(&place, &admin, Method::POST, &format!("/v1/jobs/{id}/retry"), &json!({})).await.ok();
    let drain = "/v1/workers/00000000000000a1/drain";
    for _ in 0..2 {
        send(&place, &admin, Method::POST, drain, &json!({})).await.ok();
    }
    let trail = trail(&place, &admin).await;
    let line = |act: &str, about: &str| [&ada, act, about, "-"].map(str::to_owned);
    assert_eq!(trail[1..], [line("retried", id), line("drained", "00000000000000a1")]);
}
