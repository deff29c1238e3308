package server

import (
	"errors"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/zone/execution"
)

// TestZN4_Refused: a task that cannot be begun since there is no room for it now, or the
// database is away, is one to ask for again, and not one that went wrong inside.
func TestZN4_Refused(t *testing.T) {
	t.Parallel()
	full := parley.Errorf(parley.CodeConflict, "full").WithDetails(parley.ConflictDetails{Conflict: parley.ConflictConcurrency})
	for _, c := range []struct {
		err            error
		later, invalid bool
	}{
		{parley.Errorf(parley.CodeUnavailable, "the database cannot be reached"), true, false},
		{full, true, false},
		{parley.Errorf(parley.CodeConflict, "inactive"), false, false},
		{parley.Errorf(parley.CodeLimit, "too large"), false, true},
		{parley.Errorf(parley.CodeInvalidInput, "no text"), false, true},
		{parley.Errorf(parley.CodeInternal, "a fault"), false, false},
		{errors.New("a fault"), false, false},
	} {
		err := refused(c.err)
		if _, later := errors.AsType[*execution.OverloadedError](err); later != c.later || errors.Is(err, execution.ErrInvalid) != c.invalid || !errors.Is(err, c.err) {
			t.Errorf("%v becomes %v", c.err, err)
		}
	}
}
