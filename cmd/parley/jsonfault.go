package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// withoutMark is a text without the byte order mark that editors on Windows begin files
// with: workflows, configurations and lists of agents may have one, so JSON and files of
// keys may, too.
func withoutMark(b []byte) []byte { return bytes.TrimPrefix(b, []byte("\ufeff")) }

// jsonFault says where JSON is broken, in lines and columns.
func jsonFault(b []byte, err error) string {
	e, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return err.Error()
	}
	at := b[:min(max(int(e.Offset)-1, 0), len(b))]
	line := 1 + bytes.Count(at, []byte("\n"))
	col := 1 + utf8.RuneCount(at[bytes.LastIndexByte(at, '\n')+1:])
	return fmt.Sprintf("line %d, column %d: %v", line, col, e)
}
