package values

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A store carries a mark that says whose it is: those who keep values in it remove
// what they do not know, and two of them would remove each other's.

// MarkName is the name of the mark beside the objects, of which none can have it.
const MarkName = "parley-owner.json"

// MostMark bounds a mark, in bytes.
const MostMark = 4 << 10

// markFormat is the newest format of a mark that is known here.
const markFormat = 1

type mark struct {
	Format   int       `json:"format"`
	Database string    `json:"database"`
	TakenAt  time.Time `json:"taken_at"`
}

// OwnedError says that a store is not that of the database which claims it.
type OwnedError struct {
	// Mark says where the mark is, Database what it names: "" if it cannot be read.
	Mark, Database string
	// Since is when that database has taken the store.
	Since time.Time
}

// Error says whose it is.
func (e *OwnedError) Error() string {
	if e.Database == "" {
		return e.Mark + " says whose it is, which this program cannot read"
	}
	return fmt.Sprintf("%s names the database %s, since %s", e.Mark, e.Database, e.Since.Format(time.RFC3339))
}

// Claim takes a store that nobody has taken for a database, and does nothing if that
// has it already. For the store of another the error is an [OwnedError]; any other means
// that the store cannot be asked now.
func Claim(ctx context.Context, s Store, database string, at time.Time) error {
	mine, err := json.Marshal(mark{markFormat, database, at.UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	held, err := s.Mark(ctx, append(mine, '\n'))
	if err != nil && !errors.Is(err, ErrLonger) {
		return err
	}
	var m mark
	if json.Unmarshal(held, &m) != nil || m.Format != markFormat || m.Database == "" {
		return &OwnedError{Mark: s.MarkedAt()}
	}
	if m.Database != database {
		return &OwnedError{Mark: s.MarkedAt(), Database: m.Database, Since: m.TakenAt}
	}
	return nil
}
