use serde_json::json;

use super::{Answer, Sim, completion, options_for};
use crate::sim::{ApiKey, Dialect, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn vllm_streams_completions_with_a_usage_tail() {
    let sim = Sim::start(options_for(Dialect::Vllm)).await;
    let answer = sim.complete(5).await;
    assert!(answer.status == 200 && answer.is_complete);
    assert_eq!((answer.events().len(), answer.texts()), (7, 5));
    assert_eq!(answer.events()[6], "[DONE]");
    let tail = &answer.values()[5];
    assert_eq!(tail["usage"]["completion_tokens"], 5);
    assert_eq!(tail["usage"]["prompt_tokens"], 4);
    assert_eq!(answer.values()[4]["choices"][0]["finish_reason"], "length");

    assert_eq!(sim.get("/health").await.status, 200);
    assert_eq!(
        sim.get("/version").await.json(),
        json!({ "version": "0.0.0-sim" })
    );
    assert_eq!(
        sim.get("/server_info").await.json()["vllm_config"]["tensor_parallel_size"],
        1
    );
    assert_eq!(sim.get("/v1/models").await.json()["data"][0]["id"], "m");
    assert_eq!(
        sim.call("POST", "/reset_prefix_cache", "").await.json(),
        json!({ "success": true })
    );
    assert_eq!(sim.get("/reset_prefix_cache").await.status, 405);
    assert_eq!(sim.get("/nowhere").await.json(), json!({ "detail": "Not Found" }));
    assert_eq!(sim.metric("vllm:generation_tokens_total").await, 5.0);
    assert_eq!(sim.metric("vllm:prompt_tokens_total").await, 4.0);
    assert_eq!(sim.metric("vllm:time_to_first_token_seconds_count").await, 1.0);
    assert_eq!(sim.metric("vllm:inter_token_latency_seconds_count").await, 4.0);
    assert_eq!(sim.metric("vllm:num_requests_running").await, 0.0);
    sim.stop().await;
}

#[tokio::test]
async fn sglang_generates_natively_and_flushes_its_cache() {
    let sim = Sim::start(Options {
        metrics: true,
        ..options_for(Dialect::Sglang)
    })
    .await;
    let prompt: Vec<u32> = (0..64).collect();
    let ask = |stream: bool| {
        json!({ "input_ids": prompt, "sampling_params": { "max_new_tokens": 3, "ignore_eos": true }, "stream": stream })
            .to_string()
    };
    let first = sim.call("POST", "/generate", &ask(true)).await;
    let values = first.values();
    assert_eq!(
        values
            .iter()
            .map(|v| v["meta_info"]["completion_tokens"].as_u64())
            .collect::<Vec<_>>(),
        [1, 2, 3].map(Some)
    );
    assert_eq!(
        (
            &values[2]["meta_info"]["prompt_tokens"],
            &values[2]["meta_info"]["cached_tokens"]
        ),
        (&json!(64), &json!(0))
    );
    assert_eq!(first.events()[3], "[DONE]");

    let second = sim.call("POST", "/generate", &ask(false)).await.json();
    assert_eq!(second["text"], values[2]["text"]);
    assert_eq!(second["meta_info"]["cached_tokens"], 48);
    assert_eq!(sim.metric("sglang:cached_tokens_total").await, 48.0);

    assert_eq!(sim.get("/flush_cache").await.status, 200);
    assert_eq!(
        sim.call("POST", "/generate", &ask(false)).await.json()["meta_info"]["cached_tokens"],
        0
    );
    for path in [
        "/health",
        "/health_generate",
        "/server_info",
        "/get_server_info",
        "/model_info",
        "/v1/models",
    ] {
        assert_eq!(sim.get(path).await.status, 200, "{path}");
    }
    assert_eq!(sim.get("/version").await.status, 404);
    sim.stop().await;
}

#[tokio::test]
async fn a_cache_in_use_is_not_emptied() {
    for (dialect, path, status) in [
        (Dialect::Sglang, "/flush_cache", 400),
        (Dialect::Vllm, "/reset_prefix_cache", 200),
    ] {
        let sim = Sim::start(options_for(dialect)).await;
        let mut busy = TcpStream::connect(sim.address).await.unwrap();
        let body = completion(30_000);
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        busy.write_all((head + &body).as_bytes()).await.unwrap();
        let mut text = String::new();
        while !text.contains("data: ") {
            let mut piece = [0; 1024];
            let length = busy.read(&mut piece).await.unwrap();
            text.push_str(std::str::from_utf8(&piece[..length]).unwrap());
        }
        let answer = sim.call("POST", path, "").await;
        assert_eq!(answer.status, status);
        assert!(answer.body.contains("failed") || answer.json() == json!({ "success": false }));
        drop(busy);
        if dialect == Dialect::Sglang {
            assert_eq!(
                sim.call("POST", "/flush_cache?timeout=15", "").await.status,
                200,
                "it waits until nothing runs"
            );
        }
        sim.stop().await;
    }
}

#[tokio::test]
async fn sglang_has_no_metrics_unless_told() {
    let sim = Sim::start(options_for(Dialect::Sglang)).await;
    assert_eq!(sim.get("/metrics").await.status, 404);
    sim.stop().await;
}

#[tokio::test]
async fn lmdeploy_merges_tokens_only_under_load() {
    let options = Options {
        merge_chunks: 4,
        ..options_for(Dialect::Lmdeploy)
    };
    let sim = Sim::start(options).await;
    assert_eq!(
        sim.complete(200).await.texts(),
        200,
        "alone, every token has its event"
    );
    let answers = tokio::join!(sim.complete(2000), sim.complete(2000));
    for answer in [answers.0, answers.1] {
        assert!(answer.texts() < 1900, "{}", answer.texts());
        assert_eq!(
            answer.values().last().unwrap()["usage"]["completion_tokens"],
            2000
        );
    }
    assert_eq!(sim.get("/health").await.json()["status"], "healthy");
    assert_eq!(sim.metric("lmdeploy:generation_tokens_total").await, 4200.0);
    assert_eq!(sim.call("POST", "/flush_cache", "").await.status, 404);
    sim.stop().await;
}

#[tokio::test]
async fn a_chat_streams_its_role_then_its_words() {
    let sim = Sim::start(options_for(Dialect::Openai)).await;
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"max_completion_tokens":3,"stream":true}"#;
    let answer = sim.call("POST", "/v1/chat/completions", body).await;
    assert_eq!((answer.texts(), answer.events().len()), (3, 5));
    assert_eq!(answer.values()[0]["choices"][0]["delta"]["role"], "assistant");
    let whole = sim
        .call("POST", "/v1/chat/completions", &body.replace("true", "false"))
        .await
        .json();
    let text: String = answer
        .values()
        .iter()
        .map(|v| v["choices"][0]["delta"]["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(whole["choices"][0]["message"]["content"], text);
    assert_eq!(whole["usage"]["completion_tokens"], 3);
    assert_eq!(sim.get("/metrics").await.status, 404);
    sim.stop().await;
}

#[tokio::test]
async fn wrong_names_and_missing_keys_are_refused() {
    let options = Options {
        api_key: Some(ApiKey::new("k")),
        ..options_for(Dialect::Vllm)
    };
    let sim = Sim::start(options).await;
    assert_eq!(sim.complete(1).await.status, 401);
    assert_eq!(sim.get("/health").await.status, 200);
    let body = r#"{"model":"other","prompt":"a"}"#;
    let (bytes, _) = sim
        .send_raw("POST", "/v1/completions", "Authorization: Bearer k\r\n", body)
        .await;
    let answer = Answer::parse(&bytes);
    assert_eq!(
        (answer.status, &answer.json()["error"]["type"]),
        (404, &json!("NotFoundError"))
    );
    sim.stop().await;
}

#[tokio::test]
async fn a_connection_serves_many_requests_sent_at_once_and_chunked() {
    let sim = Sim::start(options_for(Dialect::Openai)).await;
    let body = completion(2);
    let head = "POST /v1/completions HTTP/1.1\r\nhost: sim\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n";
    let (left, right) = body.split_at(10);
    let one = format!(
        "{head}{:x}\r\n{left}\r\n{:x}\r\n{right}\r\n0\r\n\r\n",
        left.len(),
        right.len()
    );
    let last = "GET /health HTTP/1.1\r\nconnection: close\r\n\r\n";
    let mut stream = TcpStream::connect(sim.address).await.unwrap();
    stream
        .write_all(format!("{one}{one}{last}").as_bytes())
        .await
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 3);
    assert_eq!(text.matches("data: [DONE]").count(), 2);
    sim.stop().await;
}

#[tokio::test]
async fn a_client_that_waits_to_be_told_is_told() {
    let sim = Sim::start(options_for(Dialect::Openai)).await;
    let mut stream = TcpStream::connect(sim.address).await.unwrap();
    let body = completion(1);
    let length = body.len();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(Answer::parse(&bytes).texts(), 1);
    sim.stop().await;
}

#[tokio::test]
async fn bytes_that_are_no_request_are_answered_with_400() {
    let sim = Sim::start(options_for(Dialect::Openai)).await;
    let mut stream = TcpStream::connect(sim.address).await.unwrap();
    stream.write_all(b"\x16\x03\x01hello\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 400 Bad Request"));
    sim.stop().await;
}

#[tokio::test]
async fn messages_and_responses_end_with_an_event_that_has_the_counts() {
    let sim = Sim::start(options_for(Dialect::Vllm)).await;
    let user = json!([{ "role": "user", "content": "one two" }]);
    let chat = sim
        .call(
            "POST",
            "/v1/chat/completions",
            &json!({ "messages": user, "max_tokens": 3 }).to_string(),
        )
        .await
        .json();
    let body = json!({ "model": "m", "messages": user, "max_tokens": 3, "stream": true });
    let answer = sim.call("POST", "/v1/messages", &body.to_string()).await;
    let kinds: Vec<_> = answer
        .values()
        .iter()
        .map(|event| event["type"].clone())
        .collect();
    let delta = "content_block_delta";
    let start = ["message_start", "content_block_start", "ping"];
    let end = ["content_block_stop", "message_delta", "message_stop"];
    assert_eq!(kinds, [&start[..], &[delta; 3], &end].concat());
    let texts: String = answer.values()[3..6]
        .iter()
        .filter_map(|event| event["delta"]["text"].as_str())
        .collect();
    assert_eq!(texts, chat["choices"][0]["message"]["content"].as_str().unwrap());
    let last = &answer.values()[7];
    assert_eq!(last["delta"]["stop_reason"], "max_tokens");
    assert_eq!(last["usage"]["output_tokens"], 3);
    let input = last["usage"]["input_tokens"].as_u64().unwrap()
        + last["usage"]["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(Some(input), chat["usage"]["prompt_tokens"].as_u64());

    let body = json!({ "model": "m", "input": "one two", "max_output_tokens": 3, "stream": true });
    let answer = sim.call("POST", "/v1/responses", &body.to_string()).await;
    let last = answer.values().last().unwrap().clone();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(
        last["response"]["incomplete_details"]["reason"],
        "max_output_tokens"
    );
    assert_eq!(last["response"]["output"][0]["content"][0]["text"], texts);
    assert_eq!(
        last["response"]["usage"]["input_tokens"],
        chat["usage"]["prompt_tokens"]
    );
    assert_eq!(last["response"]["usage"]["output_tokens"], 3);
    let body = json!({ "model": "m", "input": user, "max_output_tokens": 3 });
    let whole = sim.call("POST", "/v1/responses", &body.to_string()).await.json();
    assert_eq!(whole["output"], last["response"]["output"]);
    let body = json!({ "model": "m", "messages": user, "max_tokens": 3 });
    let whole = sim.call("POST", "/v1/messages", &body.to_string()).await.json();
    assert_eq!(
        (&whole["content"][0]["text"], &whole["stop_reason"]),
        (&json!(texts), &json!("max_tokens"))
    );
    let body = json!({ "model": "m", "messages": user });
    assert_eq!(
        sim.call("POST", "/v1/messages", &body.to_string()).await.status,
        400
    );
    sim.stop().await;
}

#[tokio::test]
async fn demanded_answers_are_json_or_calls_in_every_protocol() {
    let sim = Sim::start(options_for(Dialect::Vllm)).await;
    let user = json!([{ "role": "user", "content": "one two" }]);
    let schema = json!({ "type": "object", "required": ["a"], "properties": { "a": { "type": "string" } } });
    let function = json!({ "name": "find", "parameters": schema });
    let format = json!({ "type": "json_schema", "json_schema": { "schema": schema } });
    let tools = json!([{ "type": "function", "function": function }]);
    let is_object = |text: &str| {
        serde_json::from_str::<serde_json::Value>(text).is_ok_and(|value| value["a"].is_string())
    };

    for stream in [false, true] {
        let body = json!({
            "messages": user, "max_tokens": 50, "stream": stream, "response_format": format, "ignore_eos": true,
        });
        let answer = sim.call("POST", "/v1/chat/completions", &body.to_string()).await;
        let body = json!({ "messages": user, "max_tokens": 50, "stream": stream, "tools": tools, "tool_choice": "required" });
        let called = sim.call("POST", "/v1/chat/completions", &body.to_string()).await;
        let of_messages = json!({
            "messages": user, "max_tokens": 50, "stream": stream, "tool_choice": { "type": "any" },
            "tools": [{ "name": "find", "input_schema": schema }],
        });
        let messages = sim.call("POST", "/v1/messages", &of_messages.to_string()).await;
        let of_responses = json!({
            "input": "one two", "max_output_tokens": 50, "stream": stream,
            "text": { "format": { "type": "json_schema", "name": "n", "schema": schema } },
        });
        let responses = sim.call("POST", "/v1/responses", &of_responses.to_string()).await;
        if stream {
            let pieces = |answer: &Answer, path: &str| -> String {
                let values = answer.values();
                let pieces = values.iter().filter_map(|event| event.pointer(path)?.as_str());
                pieces.collect()
            };
            assert!(is_object(&pieces(&answer, "/choices/0/delta/content")));
            assert!(is_object(&pieces(
                &called,
                "/choices/0/delta/tool_calls/0/function/arguments"
            )));
            assert_eq!(
                pieces(&called, "/choices/0/delta/tool_calls/0/function/name"),
                "find"
            );
            assert_eq!(pieces(&called, "/choices/0/finish_reason"), "tool_calls");
            assert!(is_object(&pieces(&messages, "/delta/partial_json")));
            assert_eq!(pieces(&messages, "/content_block/name"), "find");
            assert_eq!(pieces(&messages, "/delta/stop_reason"), "tool_use");
            assert!(is_object(&pieces(&responses, "/delta")));
            continue;
        }
        let choice = answer.json()["choices"][0].clone();
        assert!(is_object(choice["message"]["content"].as_str().unwrap()));
        assert_eq!(choice["finish_reason"], "stop");
        let choice = called.json()["choices"][0].clone();
        let call = &choice["message"]["tool_calls"][0]["function"];
        assert!(call["name"] == "find" && is_object(call["arguments"].as_str().unwrap()));
        let message = messages.json();
        assert!(message["content"][0]["input"]["a"].is_string());
        assert_eq!(message["stop_reason"], "tool_use");
        let response = responses.json();
        assert!(is_object(
            response["output"][0]["content"][0]["text"].as_str().unwrap()
        ));
        assert_eq!(response["status"], "completed");
    }

    let refused = json!({ "messages": user, "response_format": { "type": "json_schema", "json_schema": { "schema": { "anyOf": [] } } } });
    let refusal = sim
        .call("POST", "/v1/chat/completions", &refused.to_string())
        .await;
    assert_eq!(refusal.status, 400);
    // A model that may decide says words.
    let free = json!({ "messages": user, "max_tokens": 3, "tools": tools });
    let words = sim
        .call("POST", "/v1/chat/completions", &free.to_string())
        .await
        .json();
    assert_eq!(words["choices"][0]["finish_reason"], "length");
    assert!(words["choices"][0]["message"]["content"].is_string());
    sim.stop().await;
}
