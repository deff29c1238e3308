package api

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
)

// TestC7_ArchiveExport: a page of runs is a line each; what was removed meanwhile is
// left out, what cannot be read is named, and the cursor of what follows is in the header.
func TestC7_ArchiveExport(t *testing.T) {
	s, w := setup(nil)
	w.archive.ids = []string{"a", "gone", "damaged", "b"}
	w.archive.next = &parley.RunMark{ID: "b", At: time.UnixMicro(7).UTC()}
	rec := call(s.handler(), "GET", "/api/v1/archive/runs?limit=3&workflow_id=hello&status=FAILED", "")
	if rec.Code != http.StatusOK || rec.Body.String() != "{\"run\":\"a\"}\n{\"unreadable\":\"damaged\"}\n{\"run\":\"b\"}\n" || rec.Header().Get("Content-Type") != mediaLines {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if q := w.archive.query; !q.Ascending || q.Workflow != "hello" || w.archive.limit != 3 || len(q.Status) != 1 {
		t.Errorf("asked for %+v, %d of them", q, w.archive.limit)
	}
	cursor := rec.Header().Get(cursorHeader)
	w.archive.next = nil
	rec = call(s.handler(), "GET", "/api/v1/archive/runs?cursor="+cursor, "")
	if diff := cmp.Diff(&parley.RunMark{ID: "b", At: time.UnixMicro(7).UTC()}, w.archive.query.After, cmp.Comparer(time.Time.Equal)); diff != "" || rec.Header().Get(cursorHeader) != "" {
		t.Errorf("the next page, ended by %q, begins at (-want +got):\n%s", rec.Header().Get(cursorHeader), diff)
	}
	for _, query := range []string{"limit=0", "limit=501", "cursor=x", "created_after=x"} {
		if rec := call(s.handler(), "GET", "/api/v1/archive/runs?"+query, ""); rec.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", query, rec.Code)
		}
	}
}

// TestC7_ArchiveExportBreaks: half an answer does not look like a whole one.
func TestC7_ArchiveExportBreaks(t *testing.T) {
	s, w := setup(nil)
	w.archive.ids = []string{"a", "broken", "b"}
	server := httptest.NewServer(s.handler())
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/archive/runs", nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer test-key")
	resp, err := server.Client().Do(r)
	if err == nil {
		buf := make([]byte, 1000)
		for err == nil {
			_, err = resp.Body.Read(buf)
		}
		must(t, resp.Body.Close())
	}
	if err == nil || err.Error() == "EOF" {
		t.Errorf("the answer ended with %v", err)
	}
}

// TestC7_ArchiveImport: each line stands for itself; those that are refused are
// named by their number, and blank ones are passed over.
func TestC7_ArchiveImport(t *testing.T) {
	s, w := setup(func(c *Config) { c.Limits.Archive = 6000 })
	rec := call(s.handler(), "POST", "/api/v1/archive/runs", "{1}\n\nbad\n{2}", "Content-Type", mediaLines)
	want := `{"added":2,"same":0,"conflict":0,"invalid":1,"refused":[{"line":3,"outcome":"invalid","code":"invalid","detail":"no run"}]}` + "\n"
	if rec.Code != http.StatusOK || rec.Body.String() != want {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	slices.Sort(w.archive.added)
	if diff := cmp.Diff([]string{"bad\n", "{1}\n", "{2}"}, w.archive.added); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		body, media, encoding string
		status                int
		say                   string
	}{
		{"", mediaLines, "", 200, `"refused":[]`},
		{"{}", "text/yaml", "", 415, "application/x-ndjson"},
		{"{}", mediaLines, "gzip", 415, "Content-Encoding"},
		{strings.Repeat("{}\n", 1001), mediaLines, "", 413, "more than 1000 lines"},
		{"{}\n" + strings.Repeat("x", 6000), mediaLines, "", 413, "limit archive of 6000 bytes, at its line 2"},
	} {
		rec := call(s.handler(), "POST", "/api/v1/archive/runs", c.body, "Content-Type", c.media, "Content-Encoding", c.encoding)
		if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.say) {
			t.Errorf("%.20q: %d %s, want %d with %s", c.body, rec.Code, rec.Body, c.status, c.say)
		}
	}
}
