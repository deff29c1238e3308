package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/client"
)

// exampleServer stands for a Parley server that knows the workflow "hello".
func exampleServer() *httptest.Server {
	mux := http.NewServeMux()
	say := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	mux.HandleFunc("POST /api/v1/workflows/hello/execute", say(202, "application/json", `{"id":"run-1","status":"PENDING"}`))
	mux.HandleFunc("GET /api/v1/runs/run-1", say(200, "application/json", `{"id":"run-1","status":"COMPLETED","seq":3,"output":{"text":"Hello, Ada"}}`))
	mux.HandleFunc("GET /api/v1/runs/run-1/events", say(200, "text/event-stream",
		"data: {\"seq\":1,\"type\":\"run.started\"}\n\ndata: {\"seq\":2,\"type\":\"step.completed\",\"step\":\"greet\"}\n\ndata: {\"seq\":3,\"type\":\"run.completed\"}\n\n"))
	mux.HandleFunc("/", say(404, "application/problem+json", `{"status":404,"code":"not_found","detail":"no such workflow"}`))
	return httptest.NewServer(mux)
}

// Start a run, follow it to its end and use its output.
func Example() {
	server := exampleServer()
	defer server.Close()
	ctx := context.Background()

	c, err := client.New(client.Options{URL: server.URL, Key: parley.NewSecret([]byte("the key"))})
	if err != nil {
		log.Fatal(err)
	}
	run, err := c.StartRun(ctx, parley.StartRequest{Workflow: "hello", Input: json.RawMessage(`{"name":"Ada"}`)})
	if err != nil {
		log.Fatal(err)
	}
	for event, err := range c.Watch(ctx, run.ID, client.WatchOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Seq, event.Type)
	}
	run, err = c.Run(ctx, run.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.Status, string(run.Output))
	// Output:
	// 1 run.started
	// 2 step.completed
	// 3 run.completed
	// COMPLETED {"text":"Hello, Ada"}
}

// Tell a refusal from a server that cannot be reached.
func ExampleError() {
	server := exampleServer()
	defer server.Close()
	c, err := client.New(client.Options{URL: server.URL})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.StartRun(context.Background(), parley.StartRequest{Workflow: "helo"})
	if refused, ok := errors.AsType[*client.Error](err); ok {
		fmt.Println(refused.Status, refused.Code, refused.Detail)
	}
	fmt.Println(errors.Is(err, client.ErrUnreachable))
	// Output:
	// 404 not_found no such workflow
	// false
}
