package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley"
)

// Archive takes runs that are over out of the database as lines of text, and brings
// them in.
type Archive interface {
	// Page gives the ids of one page of runs, and where the next one begins.
	Page(ctx context.Context, q parley.RunQuery, limit int) (ids []string, next *parley.RunMark, err error)
	// Line gives the line of a run with its line end; not_found if it is gone.
	Line(ctx context.Context, id string) ([]byte, error)
	// Add brings the run of a line in. The error is that of the database.
	Add(ctx context.Context, line []byte) (parley.ArchivedRun, error)
}

const (
	// mediaLines is the type of a body of lines, each a JSON value.
	mediaLines = "application/x-ndjson"
	// cursorHeader says where the next page begins, in an answer that has no member
	// for it.
	cursorHeader = "Parley-Next-Cursor"
	// maxLines bounds the lines of one body.
	maxLines = 1000
)

func (s *server) archiveRoutes() []route {
	const tag = "runs"
	order := orderParam()
	params := cursorParams()
	for _, p := range runFilters() {
		if p.Name != "sort_by" && p.Name != order.Name {
			params = append(params, p)
		}
	}
	return []route{
		{
			method: http.MethodGet, path: "/api/v1/archive/runs", id: "export-runs", tag: tag,
			summary: "Get a page of runs that are over, oldest first, a whole run on each line, or {\"unreadable\":ID} for one that cannot be read; the header " + cursorHeader + " has the cursor of what follows and is absent at the end",
			params:  params, answers: []answer{{status: http.StatusOK, media: mediaLines}}, errors: []int{422, 503}, handle: s.exportRuns,
		},
		{
			method: http.MethodPost, path: "/api/v1/archive/runs", id: "import-runs", tag: tag,
			summary: fmt.Sprintf("Bring runs in, a whole run on each line (%s), at most %d lines; what is refused harms no other line", mediaLines, maxLines),
			params:  []*huma.Param{}, lines: true, answers: ok(parley.ArchiveReport{}), errors: []int{400, 413, 415, 503}, handle: s.importRuns,
		},
	}
}

// unreadableRun is the line of a run that cannot be read. No import takes it for a run.
type unreadableRun struct {
	Unreadable string `json:"unreadable"`
}

// exportRuns streams a page of runs. What breaks after the beginning breaks the
// connection: half an answer must not look like a whole one.
func (s *server) exportRuns(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	req := runQuery(q)
	req.Ascending, req.After = true, q.cursor("cursor")
	limit := int(q.integer("limit", 20, 1, maxSearch))
	if err := q.done(); err != nil {
		return err
	}
	none, err := s.meant(r.Context(), &req)
	if err != nil {
		return err
	}
	release, err := s.takeBatch()
	if err != nil {
		return err
	}
	defer release()
	var ids []string
	var next *parley.RunMark
	if !none {
		if ids, next, err = s.cfg.Archive.Page(r.Context(), req, limit); err != nil {
			return err
		}
	}
	w.Header().Set("Content-Type", mediaLines)
	if next != nil {
		w.Header().Set(cursorHeader, cursorOf(next))
	}
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	for _, id := range ids {
		line, err := s.cfg.Archive.Line(r.Context(), id)
		switch {
		case parley.CodeOf(err) == parley.CodeNotFound:
			continue // it was removed meanwhile
		case err != nil && r.Context().Err() == nil && parley.CodeOf(err) != parley.CodeUnavailable:
			// It always will be so: it is named, and the others are not kept for it.
			s.cfg.Logger.Error("a run cannot be exported", "run", id, "request_id", requestID(r), "error", err)
			line, err = encode(unreadableRun{id})
		}
		if err == nil {
			s.deadline(rc.SetWriteDeadline)
			_, err = w.Write(line)
		}
		if err != nil {
			s.cfg.Logger.Error("an export of runs ends early", "run", id, "request_id", requestID(r), "error", err)
			panic(http.ErrAbortHandler)
		}
	}
	return nil
}

// importRuns reads line after line and brings each in.
func (s *server) importRuns(w http.ResponseWriter, r *http.Request) error {
	if given := r.Header.Get("Content-Type"); !isJSON(given) && !isLines(given) {
		return refuse(http.StatusUnsupportedMediaType, codeMedia, "the body must be lines of JSON: send the header \"Content-Type: %s\"", mediaLines)
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return refuse(http.StatusUnsupportedMediaType, codeMedia, "compressed bodies are not read: send it without Content-Encoding")
	}
	release, err := s.takeBatch()
	if err != nil {
		return err
	}
	defer release()
	in := &arrivals{add: s.cfg.Archive.Add}
	in.group.SetLimit(importAtOnce)
	readErr := s.readLines(w, r, in)
	report, err := in.report()
	if readErr != nil {
		err = readErr
	}
	if err == nil {
		s.reply(w, r, http.StatusOK, report)
	}
	return err
}

// readLines has each line of a body brought in.
func (s *server) readLines(w http.ResponseWriter, r *http.Request, to *arrivals) error {
	rc := http.NewResponseController(w)
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	body := bufio.NewReaderSize(http.MaxBytesReader(w, r.Body, s.cfg.Limits.Archive), 64<<10)
	for n := 1; ; n++ {
		s.deadline(rc.SetReadDeadline)
		line, err := body.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err := s.lineFault(n, err); err != nil {
			return err
		}
		if len(bytes.TrimSpace(line)) > 0 {
			to.take(r.Context(), n, line)
		}
		if err != nil {
			return nil // the last line had no line end
		}
	}
}

// importAtOnce is how many lines are brought in at a time: they share synced writes.
const importAtOnce = 8

// arrivals are the lines of a body on their way in.
type arrivals struct {
	add   func(ctx context.Context, line []byte) (parley.ArchivedRun, error)
	group errgroup.Group

	mu    sync.Mutex // protects lines
	lines []parley.ArchivedRun
}

// take brings a line in, at the latest when report returns.
func (a *arrivals) take(ctx context.Context, n int, line []byte) {
	a.group.Go(func() error {
		res, err := a.add(ctx, line)
		if err != nil {
			return err
		}
		res.Line = n
		a.mu.Lock()
		defer a.mu.Unlock()
		a.lines = append(a.lines, res)
		return nil
	})
}

// report waits for all lines.
func (a *arrivals) report() (parley.ArchiveReport, error) {
	report := parley.ArchiveReport{Refused: []parley.ArchivedRun{}}
	if err := a.group.Wait(); err != nil {
		return report, err
	}
	slices.SortFunc(a.lines, func(x, y parley.ArchivedRun) int { return x.Line - y.Line })
	for _, res := range a.lines {
		report.Count(res)
	}
	return report, nil
}

// isLines reports whether a Content-Type says lines of JSON.
func isLines(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == mediaLines || t == "application/jsonl" || t == "application/ndjson")
}

// lineFault refuses a body that cannot be read to its end, or has too many lines.
func (s *server) lineFault(n int, err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refuse(http.StatusRequestEntityTooLarge, codeLimit, "the body is larger than the limit archive of %s, at its line %d; the lines before it were taken", sizeText(s.cfg.Limits.Archive), n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return refuse(http.StatusBadRequest, codeInvalid, "the body ended early or took too long, at its line %d; the lines before it were taken", n)
	}
	if n > maxLines {
		return refuse(http.StatusRequestEntityTooLarge, codeLimit, "the body has more than %d lines; those were taken", maxLines)
	}
	return nil
}
