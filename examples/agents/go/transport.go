package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"
)

// handler serves the agent at / and its card at the well-known paths.
func handler(a *Agent, url string) http.Handler {
	mux := http.NewServeMux()
	text, _ := json.Marshal(card(url)) // plain values, which cannot fail
	etag := fmt.Sprintf(`"%x"`, sha256.Sum256(text))[:17] + `"`
	serveCard := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("ETag", etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text)) // knows If-None-Match
	}
	mux.HandleFunc("GET /.well-known/agent-card.json", serveCard)
	mux.HandleFunc("GET /.well-known/agent.json", serveCard) // where 0.2 looked
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, r *http.Request) { post(w, r, a) })
	return mux
}

func post(w http.ResponseWriter, r *http.Request, a *Agent) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var out response
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		out = refuse(nil, &fault{codeInvalidRequest, fmt.Sprintf("the body is larger than %d bytes", maxBody), 413})
	case err != nil:
		return // the client is gone
	case media != "application/json":
		// A browser sends text/plain to other sites without asking them; JSON it
		// does not.
		out = refuse(nil, &fault{codeInvalidRequest, "Content-Type must be application/json", 415})
	default:
		version := cmp.Or(r.Header.Get("A2A-Version"), r.URL.Query().Get("A2A-Version"))
		out = handle(call{ctx: r.Context(), agent: a, streams: true}, body, version)
	}
	if out.stream == nil {
		reply(w, out)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	rc := http.NewResponseController(w)
	for event := range out.stream {
		rc.SetWriteDeadline(time.Now().Add(time.Minute))
		if event == nil {
			_, err = io.WriteString(w, ": ping\n\n")
		} else {
			_, err = fmt.Fprintf(w, "data: %s\n\n", event)
		}
		if err != nil || rc.Flush() != nil {
			return // the client is gone; its task goes on, and can be asked about
		}
	}
}

func reply(w http.ResponseWriter, out response) {
	if out.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if out.body != nil {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(out.status)
	w.Write(out.body)
}

// maxCalls bounds the requests that are answered at the same time over stdio.
const maxCalls = 256

// talk answers one request a line of in with one response a line of out, until
// in ends and all answers that are due have been given.
func talk(ctx context.Context, a *Agent, in io.Reader, out io.Writer) error {
	var (
		calls   sync.WaitGroup
		writing sync.Mutex
		free    = make(chan struct{}, maxCalls)
		lines   = bufio.NewReaderSize(in, maxBody+1)
	)
	defer calls.Wait()
	write := func(r response) {
		if r.body != nil {
			writing.Lock()
			defer writing.Unlock()
			out.Write(append(r.body, '\n'))
		}
	}
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
			line = nil
			write(refuse(nil, faultf(codeInvalidRequest, "the line is larger than %d bytes", maxBody)))
		}
		if line = bytes.Clone(bytes.TrimSpace(line)); len(line) > 0 {
			free <- struct{}{} // no more is read before one is answered
			calls.Go(func() {
				defer func() { <-free }()
				write(handle(call{ctx: ctx, agent: a}, line, ""))
			})
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
