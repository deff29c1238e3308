package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/parley-project/parley"
)

// MaxArchiveLine bounds the line of one run of an archive, in bytes.
const MaxArchiveLine = 576 << 20

// cursorHeader says where the next page begins.
const cursorHeader = "Parley-Next-Cursor"

// ExportRuns calls each with the line of each run on a page of at most limit (1 to
// 500; 0 is 20) runs that query selects and that are over, oldest first, with its line
// end; the line is valid until each returns. It gives the cursor of the next page, ""
// after the last; cursor is "" for the first. query.Page, query.SortBy and
// query.Ascending are not used.
//
// In place of a run that the server cannot read there is a line that names it, see
// [UnreadableRun]. A page that breaks off ends with an error after some of its lines; the same cursor
// gives the whole page again.
func (c *Client) ExportRuns(ctx context.Context, query RunQuery, cursor string, limit int, each func(line []byte) error) (next string, err error) {
	query.SortBy, query.Ascending = "", false
	if limit == 0 {
		limit = 20
	}
	q := query.values(url.Values{"limit": {strconv.Itoa(limit)}})
	setIf(q, "cursor", cursor)
	resp, err := c.send(ctx, call{method: http.MethodGet, path: path("archive", "runs"), query: q, header: http.Header{"Accept": {"application/x-ndjson, application/problem+json"}}})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := readLine(body)
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return resp.Header.Get(cursorHeader), nil
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // half a line
		}
		if parley.CodeOf(err) == parley.CodeLimit {
			return "", err
		}
		if err != nil {
			return "", c.broken(ctx, http.MethodGet, err, true)
		}
		if err := each(line); err != nil {
			return "", err
		}
	}
}

// UnreadableRun gives the id of the run that a line of [Client.ExportRuns] stands for
// without holding it, since the server cannot read it; ok is false for the line of a run.
func UnreadableRun(line []byte) (run string, ok bool) {
	if !bytes.HasPrefix(line, []byte(`{"unreadable":`)) {
		return "", false
	}
	var named struct{ Unreadable string }
	err := json.Unmarshal(line, &named)
	return named.Unreadable, err == nil
}

// readLine reads a line with its line end.
func readLine(r *bufio.Reader) ([]byte, error) {
	var long []byte
	for {
		part, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) || len(long) > 0 {
			long = append(long, part...)
			part = long
		}
		if len(part) > MaxArchiveLine {
			return nil, parley.Errorf(parley.CodeLimit, "the line of a run is longer than %d bytes", MaxArchiveLine)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return part, err
		}
	}
}

// ImportRuns brings the runs of some lines, at most 1,000 with at most
// [MaxArchiveLine] bytes together, into the server's database. Lines that are refused
// are in the report, and harm no others; whoever sends lines again finds those that
// were taken the same.
func (c *Client) ImportRuns(ctx context.Context, lines []byte) (parley.ArchiveReport, error) {
	var report parley.ArchiveReport
	_, err := c.do(ctx, call{
		method: http.MethodPost, path: path("archive", "runs"), body: lines,
		header: http.Header{"Content-Type": {"application/x-ndjson"}},
	}, &report)
	return report, err
}
