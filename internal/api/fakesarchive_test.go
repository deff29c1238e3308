package api

import (
	"context"
	"fmt"

	"github.com/parley-project/parley"
)

// archiveWorld is what the API may take out and has asked for.
type archiveWorld struct {
	ids   []string
	next  *parley.RunMark
	added []string
	query parley.RunQuery
	limit int
}

// fakeArchive is the view of runs that are over: a line is the id and what was sent.
type fakeArchive struct{ *world }

func (f fakeArchive) Page(_ context.Context, q parley.RunQuery, limit int) (ids []string, next *parley.RunMark, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return nil, nil, f.broken
	}
	f.archive.query, f.archive.limit = q, limit
	return f.archive.ids, f.archive.next, nil
}

func (f fakeArchive) Line(_ context.Context, id string) ([]byte, error) {
	switch id {
	case "gone":
		return nil, parley.Errorf(parley.CodeNotFound, "there is no run %q", id)
	case "damaged":
		return nil, parley.Errorf(parley.CodeInternal, "the history of run %q cannot be read", id)
	case "broken":
		return nil, parley.Errorf(parley.CodeUnavailable, "the database is gone")
	}
	return fmt.Appendf(nil, "{\"run\":%q}\n", id), nil
}

func (f fakeArchive) Add(_ context.Context, line []byte) (parley.ArchivedRun, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return parley.ArchivedRun{}, f.broken
	}
	f.archive.added = append(f.archive.added, string(line))
	if line[0] != '{' {
		return parley.ArchivedRun{Outcome: parley.ArchiveInvalid, Code: parley.CodeInvalid, Detail: "no run"}, nil
	}
	return parley.ArchivedRun{Run: "r", Outcome: parley.ArchiveAdded}, nil
}
