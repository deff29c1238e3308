package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "rewrite the recorded answers")

// TestExchanges plays testdata/exchanges: each file is one row of the REST
// table, with requests and the full answers to them. A section "do" moves
// runs. Every request carries the key and a loopback Host unless it says
// otherwise. Every answer must also be one that the OpenAPI document allows.
func TestExchanges(t *testing.T) {
	files, err := filepath.Glob("testdata/exchanges/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no exchanges", err)
	}
	s, _ := setup(nil)
	documented := schemas(t, s)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			playFile(t, file, documented)
		})
	}
}

func playFile(t *testing.T, file string, documented *jsonschema.Compiler) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, w := setup(func(c *Config) { c.Limits.Source = 4 << 10 })
	h := s.handler()
	out := txtar.Archive{Comment: archive.Comment}
	want := map[string][]byte{}
	for _, f := range archive.Files {
		want[f.Name] = f.Data
	}
	for _, f := range archive.Files {
		kind, n, _ := strings.Cut(f.Name, "-")
		switch kind {
		case "do":
			out.Files = append(out.Files, f)
			for line := range strings.Lines(string(f.Data)) {
				if err := w.do(strings.TrimSpace(line)); err != nil {
					t.Fatal(f.Name, err)
				}
			}
		case "request":
			w.clock.step(time.Second)
			r := readRequest(t, f.Data)
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			got := dump(rec)
			name := "response-" + n
			out.Files = append(out.Files, f, txtar.File{Name: name, Data: got})
			if diff := cmp.Diff(string(want[name]), string(got)); diff != "" && !*update {
				t.Errorf("%s (-recorded +got):\n%s", name, diff)
			}
			_, pattern := s.mux.Handler(r)
			checkDocumented(t, documented, pattern, rec)
		}
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(&out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// readRequest reads "METHOD TARGET", header lines, an empty line and a body.
func readRequest(t *testing.T, data []byte) *http.Request {
	t.Helper()
	head, body, _ := strings.Cut(string(data), "\n\n")
	head = strings.TrimSuffix(head, "\n")
	body = strings.TrimSuffix(body, "\n")
	line, header, _ := strings.Cut(head, "\n")
	var raw strings.Builder
	raw.WriteString(line + " HTTP/1.1\r\nHost: 127.0.0.1:8420\r\n")
	if body != "" {
		fmt.Fprintf(&raw, "Content-Length: %d\r\n", len(body))
	}
	if !strings.Contains(header, "Authorization:") {
		raw.WriteString("Authorization: Bearer test-key\r\n")
	}
	host := ""
	for l := range strings.Lines(header) {
		l = strings.TrimSpace(l)
		if v, ok := strings.CutPrefix(l, "Host: "); ok {
			host = v
			continue
		}
		if l != "Authorization: none" {
			raw.WriteString(l + "\r\n")
		}
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw.String() + "\r\n" + body)))
	if err != nil {
		t.Fatalf("%v in %q", err, raw.String())
	}
	if host != "" {
		r.Host = host
	}
	return r
}

// dump gives status line, headers in order and body, JSON indented.
func dump(rec *httptest.ResponseRecorder) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d %s\n", rec.Code, http.StatusText(rec.Code))
	names := make([]string, 0, len(rec.Header()))
	for name := range rec.Header() {
		if name != "Content-Length" && name != "Cache-Control" && name != "X-Content-Type-Options" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(rec.Header()[name], ", "))
	}
	body := bytes.TrimSpace(rec.Body.Bytes())
	var pretty bytes.Buffer
	if json.Indent(&pretty, body, "", "  ") == nil {
		body = pretty.Bytes()
	}
	if len(body) > 0 {
		fmt.Fprintf(&b, "\n%s\n", body)
	}
	return b.Bytes()
}

// checkDocumented fails unless the OpenAPI document describes the answer.
func checkDocumented(t *testing.T, c *jsonschema.Compiler, pattern string, rec *httptest.ResponseRecorder) {
	t.Helper()
	if pattern == "" {
		return
	}
	method, path, _ := strings.Cut(pattern, " ")
	if path == "/{$}" {
		path = "/"
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace
	media, _, _ := strings.Cut(rec.Header().Get("Content-Type"), ";")
	at := fmt.Sprintf("/paths/%s/%s/responses/%d", escape(path), strings.ToLower(method), rec.Code)
	if media != "" {
		at += "/content/" + escape(media) + "/schema"
	}
	schema, err := c.Compile("mem:///openapi.json#" + at)
	if err != nil {
		t.Errorf("%s answers %d %s, which the document does not describe: %v", pattern, rec.Code, media, err)
		return
	}
	if media != "application/json" && media != problemType {
		return
	}
	value, err := jsonschema.UnmarshalJSON(rec.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s %d does not fit its schema: %v", pattern, rec.Code, err)
	}
}
