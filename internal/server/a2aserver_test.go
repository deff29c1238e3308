package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// a2aRequest is what the agents of these tests read of a request of A2A 1.0.
type a2aRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ID      string `json:"id"`
		Message struct {
			MessageID string `json:"messageId"`
			TaskID    string `json:"taskId"`
			Parts     []struct {
				Text string `json:"text"`
			} `json:"parts"`
		} `json:"message"`
	} `json:"params"`
}

// reply writes an answer.
func (r *a2aRequest) reply(w http.ResponseWriter, result any) { _, _ = w.Write(r.answer(result)) }

func (r *a2aRequest) answer(result any) []byte {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": r.ID, "result": result})
	if err != nil {
		panic(err)
	}
	return b
}

// a2aTasks are an agent's tasks. Its methods are called concurrently.
type a2aTasks interface {
	// send executes a message and answers it.
	send(w http.ResponseWriter, r *http.Request, req *a2aRequest)
	// state is a task as its caller sees it.
	state(id string) map[string]any
	// list gives the tasks with the messages that they were made of.
	list() []any
	// told hears that a piece of a task's output went out on a stream.
	told(id string)
}

// serveA2A answers one request as an agent of A2A 1.0 over JSON-RPC. A stream tells a
// piece of output each pace.
func serveA2A(w http.ResponseWriter, r *http.Request, tasks a2aTasks, pace time.Duration) {
	var req a2aRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch req.Method {
	case "SendMessage":
		tasks.send(w, r, &req)
	case "GetTask":
		req.reply(w, tasks.state(req.Params.ID))
	case "ListTasks":
		req.reply(w, map[string]any{"tasks": tasks.list(), "nextPageToken": ""})
	case "SubscribeToTask":
		streamTask(w, r, &req, tasks, pace)
	default:
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, req.ID)
	}
}

// streamTask tells a task's state and then a piece of its output at a time, until it
// waits or has ended.
func streamTask(w http.ResponseWriter, r *http.Request, req *a2aRequest, tasks a2aTasks, pace time.Duration) {
	w.Header().Set("Content-Type", "text/event-stream")
	id := req.Params.ID
	tell := func(result any) {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", req.answer(result))
		w.(http.Flusher).Flush()
	}
	tell(map[string]any{"task": tasks.state(id)})
	for n := 0; ; n++ {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(pace):
		}
		if status := tasks.state(id)["status"].(map[string]any); status["state"] != "TASK_STATE_WORKING" {
			tell(map[string]any{"statusUpdate": map[string]any{"taskId": id, "contextId": "ctx-" + id, "status": status}})
			return
		}
		artifact := map[string]any{"artifactId": "a", "parts": []any{map[string]any{"text": fmt.Sprint(n, " ")}}}
		tell(map[string]any{"artifactUpdate": map[string]any{"taskId": id, "contextId": "ctx-" + id, "append": n > 0, "artifact": artifact}})
		tasks.told(id)
	}
}

// listedTask is a task of a list: one that is worked on, with the message that it was
// made of.
func listedTask(id, message string) map[string]any {
	return map[string]any{
		"id": id, "contextId": "ctx-" + id, "status": map[string]any{"state": "TASK_STATE_WORKING"},
		"history": []any{map[string]any{"messageId": message, "role": "ROLE_USER", "parts": []any{}}},
	}
}
