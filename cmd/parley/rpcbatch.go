package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/parley-project/parley/jsonrpc"
)

// maxRPCBatch bounds the entries of --batch.
const maxRPCBatch = 1000

// batchEntry is one call of --batch. A nil id is a notification.
type batchEntry struct {
	Version json.RawMessage `json:"jsonrpc"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	ID      json.RawMessage `json:"id"`
}

// batchAnswer is one line of output: the id is that of the file.
type batchAnswer struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *wireError      `json:"error,omitempty"`
}

// wireError is an error as it is on the wire.
type wireError struct {
	Code    jsonrpc.Code    `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// readBatch reads an array of calls, or one call per line.
func (a *app) readBatch(file string) ([]batchEntry, error) {
	var b []byte
	var err error
	if file == "-" {
		file = "standard input"
		b, err = readAll(a.stdin, file, maxInput)
	} else {
		b, err = readFile(a.path(file), maxInput)
	}
	if err != nil {
		return nil, usagef("--batch: %v", err)
	}
	b = withoutMark(b)
	var raws []json.RawMessage
	if trimmed := bytes.TrimLeft(b, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		if err := json.Unmarshal(b, &raws); err != nil {
			return nil, invalidf("%s is not JSON: %v", file, jsonFault(b, err))
		}
	} else if raws, err = readValues(b); err != nil {
		return nil, invalidf("%s is not JSON: %v", file, jsonFault(b, err))
	}
	if len(raws) == 0 || len(raws) > maxRPCBatch {
		return nil, invalidf("%s has %d entries: a batch has 1 to %d", file, len(raws), maxRPCBatch)
	}
	entries := make([]batchEntry, len(raws))
	for i, raw := range raws {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		e := &entries[i]
		switch err := d.Decode(e); {
		case err != nil:
			return nil, invalidf("%s: entry %d: %v", file, i+1, err).withHint(`an entry is {"method": NAME, "params": …, "id": …}; "params" and "id" may be left out`)
		case e.Method == "":
			return nil, invalidf("%s: entry %d has no method", file, i+1)
		case e.Params != nil && e.Params[0] != '[' && e.Params[0] != '{':
			return nil, invalidf("%s: entry %d: params are an array or an object", file, i+1)
		}
	}
	return entries, nil
}

// readValues reads JSON values one after the other.
func readValues(b []byte) ([]json.RawMessage, error) {
	var out []json.RawMessage
	for d := json.NewDecoder(bytes.NewReader(b)); ; {
		var raw json.RawMessage
		switch err := d.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		}
		out = append(out, raw)
	}
}

// sendBatch sends the calls together and prints their answers. How the program ends is
// decided by the first call without one, else by the first error that was answered.
func (a *app) sendBatch(ctx context.Context, c *jsonrpc.Conn, entries []batchEntry) error {
	var batch jsonrpc.Batch
	calls := make([]*jsonrpc.BatchCall, len(entries))
	results := make([]json.RawMessage, len(entries))
	for i, e := range entries {
		var params any
		if e.Params != nil {
			params = e.Params
		}
		if e.ID == nil {
			batch.Notify(e.Method, params)
			continue
		}
		calls[i] = batch.Call(e.Method, params, &results[i])
	}
	if err := c.Batch(ctx, &batch); err != nil {
		return err
	}
	var refused, lost error
	answers := []batchAnswer{}
	for i, call := range calls {
		if call == nil {
			continue
		}
		answer := batchAnswer{ID: entries[i].ID, Method: entries[i].Method, Result: results[i]}
		if err := call.Err(); err != nil {
			wire, ok := errors.AsType[*jsonrpc.Error](err)
			if !ok {
				lost = cmp.Or(lost, err)
				continue
			}
			answer.Result, answer.Error = nil, &wireError{wire.Code, wire.Message, wire.Data}
			refused = cmp.Or(refused, err)
		}
		answers = append(answers, answer)
	}
	if lost != nil && len(answers) == 0 {
		return lost
	}
	return cmp.Or(a.showAnswers(answers), lost, refused)
}

// showAnswers prints one line per answer, or the whole as an array.
func (a *app) showAnswers(answers []batchAnswer) error {
	if !a.human() && a.flags.output != "jsonl" {
		return a.data(answers)
	}
	for _, answer := range answers {
		raw, err := toJSON(answer)
		if err != nil {
			return err
		}
		if err := a.showResult(raw); err != nil {
			return err
		}
	}
	return nil
}
