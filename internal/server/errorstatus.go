package server

import (
	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/api"
)

// ErrorStatus gives the HTTP status of an answer of the REST interface that refuses
// with this code; ok is false for a code that no answer has.
func ErrorStatus(code parley.Code) (status int, ok bool) { return api.StatusOf(code) }
