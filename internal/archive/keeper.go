package archive

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

// Keeper takes runs out of a database and brings them into one. Its methods may be
// called concurrently.
type Keeper struct {
	// DB, Check and Now are required.
	DB *store.DB
	// Check refuses a history that does not lead to the state that the run is said to
	// have ended in.
	Check func(ctx context.Context, a *store.Archived) error
	Now   func() time.Time
	// Admit is an error while nothing is taken; nil is never.
	Admit func() error
}

// Page gives the ids of the runs on one page of a search that are over, and where the
// next page begins; nil is the end.
func (k *Keeper) Page(ctx context.Context, q parley.RunQuery, limit int) (ids []string, next *parley.RunMark, err error) {
	rows, next, err := k.DB.SearchRuns(ctx, q, limit)
	for i := range rows {
		if rows[i].Status.Terminal() && !rows[i].EndedAt.IsZero() {
			ids = append(ids, rows[i].ID)
		}
	}
	return ids, next, err
}

// Line gives the line of a run. The error has code not_found if it is gone.
func (k *Keeper) Line(ctx context.Context, id string) ([]byte, error) {
	a, err := k.DB.Archived(ctx, id)
	if err != nil {
		return nil, err
	}
	return Encode(&a), nil
}

// Add brings the run of a line into the database. What is refused is in the result;
// the error is that of a database that cannot be used.
func (k *Keeper) Add(ctx context.Context, text []byte) (parley.ArchivedRun, error) {
	if k.Admit != nil {
		if err := k.Admit(); err != nil {
			return parley.ArchivedRun{}, err
		}
	}
	a, err := Decode(text)
	res := parley.ArchivedRun{Run: a.Run.ID, Outcome: parley.ArchiveAdded}
	if err == nil {
		err = k.Check(ctx, &a)
	}
	if err == nil {
		if err = k.DB.AddArchived(ctx, a, k.Now()); parley.CodeOf(err) == parley.CodeConflict && k.same(ctx, &a) {
			res.Outcome, err = parley.ArchiveSame, nil
		}
	}
	if err == nil {
		return res, nil
	}
	e, ok := errors.AsType[*parley.Error](err)
	if !ok {
		return res, err
	}
	switch e.Code {
	case parley.CodeConflict:
		res.Outcome = parley.ArchiveConflict
	case parley.CodeInternal, parley.CodeUnavailable:
		return res, err
	default:
		res.Outcome = parley.ArchiveInvalid
	}
	res.Code, res.Detail = e.Code, e.Message
	return res, nil
}

// same reports whether a run is here as the archive has it. Its version may have
// another number and another author here.
func (k *Keeper) same(ctx context.Context, a *store.Archived) bool {
	here, err := k.DB.Archived(ctx, a.Run.ID)
	if err != nil || (here.Definition == nil) != (a.Definition == nil) {
		return false
	}
	there := *a
	if d := there.Definition; d != nil && !bytes.Equal(d.Source, here.Definition.Source) {
		return false
	}
	here.Definition, there.Definition = nil, nil
	return bytes.Equal(Encode(&here), Encode(&there))
}
