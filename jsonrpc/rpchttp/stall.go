package rpchttp

import (
	"net/http"
	"time"
)

// answerWriter returns a writer of an answer that gives the client up when it takes
// none of it: it must not hold a handler and its answer for ever. A WriteTimeout of
// the http.Server goes before.
func (s *Server) answerWriter(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	if srv, ok := r.Context().Value(http.ServerContextKey).(*http.Server); s.stall < 0 || ok && srv.WriteTimeout > 0 {
		return w
	}
	return &patientWriter{w, s.stall}
}

// A patientWriter waits for a client as long as it takes something.
type patientWriter struct {
	http.ResponseWriter
	stall time.Duration
}

// stallPiece is what a client has to take within the time for a stall, in bytes.
const stallPiece = 64 << 10

// Write writes pieces, with a deadline for each. The last one holds for what net/http
// writes afterwards, which then removes it.
func (p *patientWriter) Write(text []byte) (n int, err error) {
	for err == nil && n < len(text) {
		p.deadline(time.Now().Add(p.stall))
		var m int
		m, err = p.ResponseWriter.Write(text[n:min(len(text), n+stallPiece)])
		n += m
	}
	return n, err
}

// WriteHeader begins an answer that may be no more than that.
func (p *patientWriter) WriteHeader(status int) {
	p.deadline(time.Now().Add(p.stall))
	p.ResponseWriter.WriteHeader(status)
}

// impatient returns what is below a patientWriter, for an answer with deadlines of its own.
func impatient(w http.ResponseWriter) http.ResponseWriter {
	if patient, ok := w.(*patientWriter); ok {
		return patient.ResponseWriter
	}
	return w
}

// deadline sets the end of the next Write. Not every ResponseWriter knows such ends.
func (p *patientWriter) deadline(t time.Time) {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(t)
}

// Unwrap lets an http.ResponseController find what is below.
func (p *patientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// longAnswer is where the Responder writes an answer that it does not hold whole.
type longAnswer struct {
	w     http.ResponseWriter
	begun bool
}

// Write begins the answer with its head.
func (a *longAnswer) Write(p []byte) (int, error) {
	if !a.begun {
		a.begun = true
		a.w.Header()["Content-Type"] = jsonTypeHeader()
	}
	n, err := a.w.Write(p)
	if patient, ok := a.w.(*patientWriter); ok {
		patient.deadline(time.Time{}) // in HTTP/2 it ends silence, too
	}
	return n, err
}

// end bounds what net/http has left to write.
func (a *longAnswer) end() {
	if patient, ok := a.w.(*patientWriter); ok {
		patient.deadline(time.Now().Add(patient.stall))
	}
}
