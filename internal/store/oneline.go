package store

import "strings"

// OneLine gives an error of PostgreSQL's driver with its text on one line: of a host
// with several addresses it tells each attempt on a line of its own.
func OneLine(err error) error { return oneLineError{err} }

type oneLineError struct{ error }

func (e oneLineError) Error() string {
	return strings.NewReplacer(":\n\t", ": ", "\n\t", "; ").Replace(e.error.Error())
}

func (e oneLineError) Unwrap() error { return e.error }
