package a2a

import (
	"net/http"
	"testing"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bridge"
)

// FuzzBatchAnswer: whatever answers a batch, every request of it gets an answer
// or an error, nobody gets the answer that names another one, and pages of
// tasks are read without harm.
func FuzzBatchAnswer(f *testing.F) {
	for _, s := range []string{
		``, `null`, `[]`, `[null]`, `[{"id":"a"}]`, `{"id":"a","result":1}`, `[{"id":"a","result":{}},{"id":"b","error":{"code":1}}]`,
		`[{"id":"b"},{"id":"b"},{"id":null,"error":{}}]`, `{"id":null,"error":{"code":-32600}}`, `<html>`, `[[[]]]`, `[1,"a",{"id":{"id":"a"}}]`,
		`{"tasks":[{"id":"x","history":[{"messageId":"m"}]}],"nextPageToken":"n"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		op := func(id string) operation { return operation{id: id, task: parley.Task{ID: id}} }
		g := &batch{members: []*batchMember{{op: op("a")}, {op: op("b")}, {op: op("c")}}}
		reply := bridge.Reply{Status: http.StatusOK, Body: body}
		_ = refusesBatch(reply, nil)
		g.share(reply)
		for _, m := range g.members {
			if (m.err == nil) == (m.reply.Status == 0) {
				t.Errorf("%s: %v, %v", m.op.id, m.reply, m.err)
			}
			if len(m.reply.Body) == len(body) {
				continue // all of it, for everybody
			}
			if id, ok := answerID(m.reply.Body); ok && id != m.op.id {
				t.Errorf("%s got the answer to %q", m.op.id, id)
			}
		}
		if raw, err := bridge.CheckJSON("x", body); err == nil {
			p := &page{}
			_ = p.read(raw, "m")
		}
	})
}
