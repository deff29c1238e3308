package main

import (
	"bytes"
	"io"
	"net/http"
)

func readFull(r *http.Request, body []byte) (int, error) { return io.ReadFull(r.Body, body) }

// taskID finds the task id in a Simple A2A request without decoding it: the
// agents must not be what is measured.
func taskID(body []byte) []byte {
	_, rest, _ := bytes.Cut(body, []byte(`"task_id":"`))
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	return id
}
