package archive

import (
	"bytes"
	"context"
	"errors"
	"slices"
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
		if err = k.DB.AddArchived(ctx, a, k.Now()); parley.CodeOf(err) == parley.CodeConflict {
			switch missing, same, unknown := k.same(ctx, &a); {
			case unknown != nil:
				err = unknown
			case same:
				res.Outcome, err = parley.ArchiveSame, k.addLate(ctx, missing)
			}
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
// another number and another author here, and answers may have come too late since:
// missing are the attempts with those that are in the archive alone. The error is that
// of a database, or a store of values, which does not say now how the run is here.
func (k *Keeper) same(ctx context.Context, a *store.Archived) (missing []store.ArchivedAttempt, same bool, err error) {
	here, err := k.DB.Archived(ctx, a.Run.ID)
	switch {
	case err != nil && (ctx.Err() != nil || parley.CodeOf(err) == parley.CodeUnavailable):
		return nil, false, err
	case err != nil || (here.Definition == nil) != (a.Definition == nil):
		return nil, false, nil //nolint:nilerr // it is gone, or cannot be compared: what is there stays
	}
	there := *a
	if d := there.Definition; d != nil && !bytes.Equal(d.Source, here.Definition.Source) {
		return nil, false, nil
	}
	here.Definition, there.Definition = nil, nil
	known := lateOf(&here)
	there.Attempts = slices.Clone(there.Attempts)
	for i := range there.Attempts {
		t := there.Attempts[i]
		t.Late = slices.DeleteFunc(slices.Clone(t.Late), func(l store.ArchivedAnswer) bool {
			return slices.ContainsFunc(known[t.ID], func(k store.ArchivedAnswer) bool { return equalAnswers(k, l) })
		})
		if len(t.Late) > 0 {
			missing = append(missing, t)
		}
		there.Attempts[i].Late = nil
	}
	return missing, bytes.Equal(Encode(&here), Encode(&there)), nil
}

// lateOf takes the late answers out of a run.
func lateOf(a *store.Archived) map[string][]store.ArchivedAnswer {
	late := make(map[string][]store.ArchivedAnswer)
	for i := range a.Attempts {
		t := &a.Attempts[i]
		late[t.ID], t.Late = t.Late, nil
	}
	return late
}

func equalAnswers(a, b store.ArchivedAnswer) bool {
	return a.At.Equal(b.At) && a.From == b.From && a.Outcome == b.Outcome && bytes.Equal(a.Output, b.Output) && bytes.Equal(a.Meta, b.Meta)
}

func (k *Keeper) addLate(ctx context.Context, missing []store.ArchivedAttempt) error {
	if len(missing) == 0 {
		return nil
	}
	return k.DB.AddArchivedLate(ctx, missing)
}
