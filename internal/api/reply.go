package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// reply answers with v as JSON.
func (s *server) reply(w http.ResponseWriter, r *http.Request, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	s.write(w, r, status, v)
}

// write encodes before it answers, so that a value that cannot be encoded is
// an error and not half an answer.
func (s *server) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	body, err := encode(v)
	if err != nil {
		s.cfg.Logger.Error("answer cannot be encoded", "path", r.URL.Path, "request_id", requestID(r), "error", err.Error())
		status = http.StatusInternalServerError
		w.Header().Set("Content-Type", problemType)
		body, _ = encode(s.problem(r, translate(err, false)))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// encode gives JSON with a line end, and with <, > and & as they are: values
// pass unchanged.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// utc gives t in UTC, so that it is encoded with Z; nil stays nil.
func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// orNil gives nil, encoded as null, for the zero value.
func orNil[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
