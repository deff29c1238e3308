package store

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

func newAgent(name string) parley.Agent {
	return parley.Agent{
		ID: "id-" + name, Name: name, URL: "https://h/" + name, Description: "writes", Protocol: parley.ProtocolJSONRPC,
		ProtocolConfig: json.RawMessage(`{"method": "message/send","version":"2.0"}`),
		Auth:           parley.Auth{Type: parley.AuthAPIKey, Header: "X-Key", Secret: "env:KEY"},
		Timeout:        1500 * time.Millisecond, Retry: parley.RetryConfig{MaxRetries: 0, InitialDelay: 100 * time.Millisecond, MaxDelay: time.Second, Multiplier: 1.5, Budget: parley.RetryBudget{Percent: 12.5, PerSecond: 2, Off: true}},
		OutcomeUnknown: parley.OutcomeLookup, Idempotent: true, Status: parley.AgentActive, MaxConcurrent: 7, Priority: 9,
		Limits:    parley.AgentLimits{Fixed: true, Rate: 2.5, Burst: 3, Queue: 4, QueueBytes: 1 << 20},
		Detected:  json.RawMessage(`{"protocol": "jsonrpc-2.0","version":"1.0"}`),
		CreatedAt: epoch, UpdatedAt: epoch, CreatedBy: "ann", UpdatedBy: "bob",
	}
}

// changeAgent stores a as the version after its UpdatedAt.
func changeAgent(t *testing.T, db *DB, a parley.Agent) parley.Agent {
	t.Helper()
	read := a.UpdatedAt
	a.UpdatedAt = read.Add(time.Microsecond)
	check(t, db.UpdateAgent(t.Context(), a, read))
	return a
}

// TestAgentChangedMeanwhile: who changes a record that has changed since it was
// read learns so, and changes nothing.
func TestAgentChangedMeanwhile(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		a := newAgent("a")
		check(t, db.CreateAgent(t.Context(), a))
		first, second := a, a
		first.URL, second.Description = "https://first/", "second"
		first = changeAgent(t, db, first)
		second.UpdatedAt = first.UpdatedAt.Add(time.Second)
		wantCode(t, db.UpdateAgent(t.Context(), second, a.UpdatedAt), parley.CodeConflict)
		diff(t, must(db.Agent(t.Context(), "a"))(t), first)
		// Two versions of the same time could not be told apart.
		wantCode(t, db.UpdateAgent(t.Context(), first, first.UpdatedAt), parley.CodeInvalid)
	})
}

func TestAgents(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		a := newAgent("a")
		check(t, db.CreateAgent(ctx, a))
		diff(t, must(db.Agent(ctx, "id-a"))(t), a)
		diff(t, must(db.Agent(ctx, "a"))(t), a)
		_, err := db.Agent(ctx, "b")
		wantCode(t, err, parley.CodeNotFound)

		// The name of a deleted agent stays taken, and cannot be changed.
		a.Status, a.UpdatedAt, a.URL, a.Detected = parley.AgentDeleted, epoch.Add(time.Hour), "https://other/", nil
		a.Limits, a.Priority = parley.AgentLimits{}, 0
		b := a
		b.Name, b.CreatedBy = "renamed", "eve"
		check(t, db.UpdateAgent(ctx, b, epoch))
		diff(t, must(db.Agent(ctx, "a"))(t), a)
		again := newAgent("a")
		again.ID = "id-other"
		wantCode(t, db.CreateAgent(ctx, again), parley.CodeConflict)
		again.UpdatedAt = epoch.Add(time.Hour)
		wantCode(t, db.UpdateAgent(ctx, again, epoch), parley.CodeNotFound)

		// An agent whose name is the id of another.
		odd := newAgent("id-a")
		odd.ID, odd.Protocol = "id-odd", parley.ProtocolSimpleA2A
		check(t, db.CreateAgent(ctx, odd))
		diff(t, must(db.Agent(ctx, "id-a"))(t).Name, "a")

		for i := range 25 {
			check(t, db.CreateAgent(ctx, newAgent(fmt.Sprintf("n%02d", i))))
		}
		for _, c := range []struct {
			q           parley.AgentQuery
			total, rows int
		}{
			{parley.AgentQuery{}, 27, 20},
			{parley.AgentQuery{Name: "n01"}, 1, 1},
			{parley.AgentQuery{Protocol: parley.ProtocolSimpleA2A}, 1, 1},
			{parley.AgentQuery{Status: parley.AgentDeleted}, 1, 1},
			{parley.AgentQuery{Protocol: parley.ProtocolJSONRPC, Page: parley.Page{Offset: 20, Limit: 500}}, 26, 6},
		} {
			list, total, err := db.Agents(ctx, c.q)
			check(t, err)
			diff(t, []int{total, len(list)}, []int{c.total, c.rows})
		}
	})
}

// A secret itself never gets into the database, nor into the error about it.
func TestSecretsAreReferences(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		for _, secret := range []string{"hunter2", "bearer:hunter2", "hunter2:env:X"} {
			a := newAgent("a")
			a.Auth.Secret = secret
			err := db.CreateAgent(t.Context(), a)
			wantCode(t, err, parley.CodeInvalid)
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %v", err)
			}
		}
		for i, secret := range []string{"", "env:X", "file:/x", "sealed:age…"} {
			a := newAgent(fmt.Sprint("a", i))
			a.Auth.Secret = secret
			check(t, db.CreateAgent(t.Context(), a))
		}
	})
}

func definition(id, workflow, content string) Definition {
	return Definition{
		ID: id, Workflow: workflow, Name: "Name of " + workflow, Format: "yaml", Source: []byte(content), Digest: "sha-" + content,
		Description: "about", CreatedAt: epoch, UpdatedAt: epoch, CreatedBy: "ann", UpdatedBy: "ann",
	}
}

// TestNextVersion: a document without a version gets the whole number after all
// that its workflow has, whoever gave those their numbers.
func TestNextVersion(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		put := func(version, content string) string {
			d := definition("id-"+content, "w", content)
			d.Version = version
			return must(db.PutDefinition(ctx, d, PutVersion))(t).Version
		}
		diff(t, put("7", "named"), "7")
		diff(t, put("", "next"), "8")
		diff(t, put("3", "an older one"), "3")
		diff(t, put("beta", "a word"), "beta")
		diff(t, put("", "after all"), "9")
		diff(t, put("9223372036854775807", "the largest there is"), "9223372036854775807")
		diff(t, put("", "after it"), "10")
		check(t, db.SetDefinitionStatus(ctx, "id-after it", parley.AgentDeleted, "cem", epoch.Add(time.Minute)))
		diff(t, put("", "after one that is deleted"), "11")

		// The existing platform raises the version in the row when one is replaced.
		old := definition("u1", "order", "a plan")
		old.Version, old.Status = "5", parley.AgentActive
		must(db.Import(ctx, Import{Kind: ImportDefinition, ID: old.ID, Digest: "1", At: epoch, Definition: &old}))(t)
		diff(t, must(db.PutDefinition(ctx, definition("u2", "order", "the next"), PutAlways))(t).Version, "6")
	})
}

func TestDefinitionVersions(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		put := func(d Definition, mode PutMode) Definition { return must(db.PutDefinition(ctx, d, mode))(t) }
		one := put(definition("id-1", "w", "one"), PutVersion)
		diff(t, []any{one.ID, one.Number, one.Version, one.Status}, []any{"id-1", 1, "1", parley.AgentActive})
		diff(t, must(db.Definition(ctx, "id-1"))(t), one)
		diff(t, put(definition("id-x", "w", "one"), PutVersion), one)
		two := put(definition("id-2", "w", "two"), PutVersion)
		diff(t, []any{two.Number, two.Version}, []any{2, "2"})

		// Named versions.
		named := definition("id-3", "w", "three")
		named.Version = "4"
		three := put(named, PutVersion)
		diff(t, []any{three.Number, three.Version}, []any{3, "4"})
		named.ID = "id-x"
		diff(t, put(named, PutVersion), three)
		_, err := db.PutDefinition(ctx, named, PutAlways)
		wantCode(t, err, parley.CodeConflict)
		named.Digest = "sha-other"
		_, err = db.PutDefinition(ctx, named, PutVersion)
		wantCode(t, err, parley.CodeConflict)
		_, err = db.PutDefinition(ctx, named, PutAlways)
		wantCode(t, err, parley.CodeConflict)
		// An old content that is put again is a new version, past the name that is taken.
		four := put(definition("id-4", "w", "one"), PutVersion)
		diff(t, []any{four.Number, four.Version, four.ID}, []any{4, "5", "id-4"})
		five := put(definition("id-5", "w", "one"), PutAlways)
		diff(t, []any{five.Number, five.Version}, []any{5, "6"})

		// Replacing under the same id.
		change := definition("id-1", "", "six")
		change.CreatedBy, change.UpdatedBy, change.UpdatedAt = "eve", "bob", epoch.Add(time.Hour)
		change.Name = "Renamed"
		six := put(change, PutReplace)
		diff(t, []any{six.Number, six.ID, six.Workflow, six.CreatedBy, six.UpdatedBy}, []any{6, "id-1", "w", "ann", "bob"})
		diff(t, must(db.Definition(ctx, "id-1"))(t), six)
		for _, ref := range []string{"w@1", "id-1@1"} {
			diff(t, string(must(db.Definition(ctx, ref))(t).Source), "one")
		}
		_, err = db.PutDefinition(ctx, definition("id-9", "", "x"), PutReplace)
		wantCode(t, err, parley.CodeNotFound)
		_, err = db.PutDefinition(ctx, Definition{}, PutVersion)
		wantCode(t, err, parley.CodeInvalid)

		var numbers []int
		for _, d := range versionsOf(t, db, "id-3") {
			numbers = append(numbers, d.Number)
		}
		diff(t, numbers, []int{6, 5, 4, 3, 2, 1})
		diff(t, len(versionsOf(t, db, "w")), 6)
		diff(t, len(versionsOf(t, db, "Renamed")), 6)
		page, total, err := db.Versions(ctx, "w", parley.Page{Offset: 1, Limit: 2})
		check(t, err)
		diff(t, []any{len(page), page[0].Number, page[1].Number, total}, []any{2, 5, 4, 6})
		page, total, err = db.Versions(ctx, "w", parley.Page{Offset: 6, Limit: 2})
		check(t, err)
		diff(t, []int{len(page), total}, []int{0, 6})
		_, _, err = db.Versions(ctx, "none", parley.Page{})
		wantCode(t, err, parley.CodeNotFound)
	})
}

// versionsOf gives the versions of a workflow.
func versionsOf(t testing.TB, db *DB, ref string) []Definition {
	t.Helper()
	list, total, err := db.Versions(t.Context(), ref, parley.Page{Limit: 500})
	check(t, err)
	diff(t, total, len(list))
	return list
}

// TestReplaceDefinition: who replaces a version that is not the newest any more is told,
// also if several do so at once, and a workflow that is switched off stays so.
func TestReplaceDefinition(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		replace := func(content string, number int) (Definition, error) {
			d := definition("id-1", "", content)
			d.Number = number
			return db.PutDefinition(ctx, d, PutReplace)
		}
		must(db.PutDefinition(ctx, definition("id-1", "w", "one"), PutVersion))(t)
		diff(t, must(replace("two", 1))(t).Number, 2)
		_, err := replace("other", 1)
		wantCode(t, err, parley.CodeConflict)
		var done atomic.Int32
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				switch _, err := replace("three"+strconv.Itoa(i), 2); {
				case err == nil:
					done.Add(1)
				case parley.CodeOf(err) != parley.CodeConflict:
					t.Error(err)
				}
			})
		}
		all.Wait()
		diff(t, done.Load(), int32(1))
		check(t, db.SetDefinitionStatus(ctx, "id-1", parley.AgentInactive, "bob", epoch))
		diff(t, must(replace("four", 0))(t).Status, parley.AgentInactive)
		check(t, db.SetDefinitionStatus(ctx, "id-1", parley.AgentDeleted, "bob", epoch))
		diff(t, must(replace("five", 4))(t).Status, parley.AgentActive)
	})
}

func TestDefinitionLookup(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		for i, w := range []string{"w", "w", "at@w", "z"} {
			d := definition(fmt.Sprint("id-", i), w, fmt.Sprint(i))
			d.CreatedAt = epoch.Add(time.Duration(i) * time.Second)
			if w == "at@w" {
				d.Version = "1@beta"
			}
			must(db.PutDefinition(ctx, d, PutVersion))(t)
		}
		find := func(ref string) string { return must(db.Definition(ctx, ref))(t).ID }
		for ref, want := range map[string]string{
			"w": "id-1", "Name of w": "id-1", "w@1": "id-0", "id-0": "id-0", "id-0@1": "id-0", "at@w@1@beta": "id-2", "at@w": "id-2", "z@1": "id-3",
		} {
			diff(t, find(ref), want)
		}
		for _, ref := range []string{"", "none", "w@9", "@", "w@"} {
			_, err := db.Definition(ctx, ref)
			wantCode(t, err, parley.CodeNotFound)
		}
		later := epoch.Add(time.Hour)
		check(t, db.SetDefinitionStatus(ctx, "id-1", parley.AgentInactive, "bob", later))
		diff(t, find("w"), "id-0")
		diff(t, find("w@2"), "id-1")
		d := must(db.Definition(ctx, "id-1"))(t)
		diff(t, []any{d.Status, d.UpdatedBy, d.UpdatedAt}, []any{parley.AgentInactive, "bob", later})
		check(t, db.SetDefinitionStatus(ctx, "id-0", parley.AgentDeleted, "bob", later))
		_, err := db.Definition(ctx, "w")
		wantCode(t, err, parley.CodeNotFound)
		wantCode(t, db.SetDefinitionStatus(ctx, "none", parley.AgentActive, "", later), parley.CodeNotFound)

		for _, c := range []struct {
			q     parley.WorkflowQuery
			total int
			ids   string
		}{
			{parley.WorkflowQuery{}, 3, "id-3 id-2 id-1"},
			{parley.WorkflowQuery{Ascending: true}, 3, "id-1 id-2 id-3"},
			{parley.WorkflowQuery{SortBy: "name"}, 3, "id-3 id-1 id-2"},
			{parley.WorkflowQuery{Name: "Name of w"}, 1, "id-1"},
			{parley.WorkflowQuery{Status: parley.AgentActive}, 2, "id-3 id-2"},
			{parley.WorkflowQuery{Page: parley.Page{Offset: 1, Limit: 1}}, 3, "id-2"},
		} {
			list, total, err := db.Definitions(ctx, c.q)
			check(t, err)
			var ids []string
			for _, d := range list {
				ids = append(ids, d.ID)
			}
			diff(t, []any{total, strings.Join(ids, " ")}, []any{c.total, c.ids})
		}
	})
}

// Deploys at the same time get different numbers, and equal ones share one.
func TestDeploysAtOnce(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if _, err := db.PutDefinition(t.Context(), definition(fmt.Sprint("id-", i), "w", fmt.Sprint(i)), PutVersion); err != nil {
					t.Error(err)
				}
				if _, err := db.PutDefinition(t.Context(), definition(fmt.Sprint("same-", i), "same", "x"), PutVersion); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		diff(t, len(versionsOf(t, db, "w")), 20)
		diff(t, len(versionsOf(t, db, "same")), 1)
	})
}
