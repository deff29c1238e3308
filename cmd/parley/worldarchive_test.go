package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/parley-project/parley"
)

// worldArchive has two pages of runs that are over. What is brought in is there from
// then on.
type worldArchive struct{ *world }

func (v worldArchive) Page(_ context.Context, q parley.RunQuery, _ int) (ids []string, next *parley.RunMark, err error) {
	switch {
	case q.Workflow == "none":
		return nil, nil, nil
	case q.Workflow == "damaged":
		return []string{"run-101", "run-bad", "run-102"}, nil, nil
	case q.After == nil:
		return []string{"run-101", "run-102"}, &parley.RunMark{ID: "run-102", At: time.UnixMicro(102)}, nil
	}
	return []string{"run-103"}, nil, nil
}

func (v worldArchive) Line(_ context.Context, id string) ([]byte, error) {
	if id == "run-bad" {
		return nil, parley.Errorf(parley.CodeInternal, "the history of run %q cannot be read", id)
	}
	return fmt.Appendf(nil, "{\"format\":\"parley-run/1\",\"run\":{\"id\":%q}}\n", id), nil
}

func (v worldArchive) Add(_ context.Context, line []byte) (parley.ArchivedRun, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var in struct{ Run struct{ ID, Status string } }
	if json.Unmarshal(line, &in) != nil {
		return parley.ArchivedRun{Outcome: parley.ArchiveInvalid, Code: parley.CodeInvalid, Detail: "the line is not valid JSON, at byte 1"}, nil
	}
	res := parley.ArchivedRun{Run: in.Run.ID, Outcome: parley.ArchiveAdded}
	switch {
	case in.Run.Status == "OTHER":
		res.Outcome, res.Code, res.Detail = parley.ArchiveConflict, parley.CodeConflict, fmt.Sprintf("there is a run %q already", in.Run.ID)
	case slices.Contains(v.archived, in.Run.ID):
		res.Outcome = parley.ArchiveSame
	default:
		v.archived = append(v.archived, in.Run.ID)
	}
	return res, nil
}
