package executor_test

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
)

const hooked = `
name: Order
input: {type: object}
triggers:
  - webhook: {secret: "env:HOOK", if: event.body.amount > 0, input: {order: "${event.body.id}", by: "${event.headers['x-sender']}"}}
steps: [{id: a, set: 1}]
`

// TestC7_AWebhookStartsOneRunPerDelivery: what is signed starts a run, once for
// each id of a delivery, whatever its headers say the second time.
func TestC7_AWebhookStartsOneRunPerDelivery(t *testing.T) {
	triggering(t, nil, func(r *triggerRig) {
		t := r.t
		r.secret("env:HOOK", "s3cret")
		r.apply(hooked)
		const body = `{"id": 7, "amount": 1.50}`
		send := func(body string, more ...string) string {
			return r.deliver("Order", signed("s3cret", body, more...), body)
		}
		wantEqual(t, []string{
			send(body, "X-Sender", "shop", "X-GitHub-Delivery", "d-1"),
			send(body, "X-Sender", "shop, again", "x-github-delivery", "d-1"),
			send(body, "X-Sender", "shop", "X-GitHub-Delivery", "d-2"),
			send(`{"id": 8, "amount": 2}`, "X-Sender", "shop", "X-GitHub-Delivery", "d-1"),
			send(`{"id": 9, "amount": 0}`, "X-Sender", "shop"),
			send(body, "X-Sender", "shop"),
			send(body, "X-Sender", "shop"),
			r.deliver("order", signed("s3cret", body, "X-Sender", "shop"), body),
			send(body+" ", "X-Sender", "shop"),
		}, []string{
			"started run-1", "repeated run-1", "started run-3", "idempotency_conflict", "ignored", "started run-5", "repeated run-5", "repeated run-5", "started run-8",
		})
		_, _, err := r.x.Start(t.Context(), parley.StartRequest{Workflow: "order", IdempotencyKey: "parley:webhook:d-1"})
		wantCode(t, err, parley.CodeInvalid, "those of triggers")
		run := `order webhook COMPLETED {"order":7,"by":"shop"}`
		wantEqual(t, r.runs(), []string{run, run, run, run})
	})
}

// TestC7_AWebhookComesAgainAfterADeployment: a delivery that has started a run gives it
// again, also if the version that is newest by now would not take it.
func TestC7_AWebhookComesAgainAfterADeployment(t *testing.T) {
	for name, later := range map[string]string{
		"a stricter schema":      "input: {required: [n]}\ntriggers: [{webhook: {secret: 'env:HOOK'}}]",
		"an input that it lacks": "triggers: [{webhook: {secret: 'env:HOOK', input: {n: '${event.body.n}'}}}]",
	} {
		t.Run(name, func(t *testing.T) {
			triggering(t, nil, func(r *triggerRig) {
				r.secret("env:HOOK", "s3cret")
				r.apply("name: order\ntriggers: [{webhook: {secret: 'env:HOOK'}}]\nsteps: [{id: a, set: 1}]")
				send := func(body string) string {
					return r.deliver("order", signed("s3cret", body, "Webhook-Id", "d-1"), body)
				}
				wantEqual(r.t, send(`{"id":7}`), "started run-1")
				r.apply("name: order\n" + later + "\nsteps: [{id: a, set: 1}]")
				wantEqual(r.t, send(`{"id":7}`), "repeated run-1")
				wantEqual(r.t, send(`{"id":8}`), "idempotency_conflict")
			})
		})
	}
}

// TestC7_AWebhookComesAgainUnwanted: a delivery that has started a run gives it again, also
// if no `if` of the version that is newest by now holds for it; another one of that key is
// ignored.
func TestC7_AWebhookComesAgainUnwanted(t *testing.T) {
	triggering(t, nil, func(r *triggerRig) {
		r.secret("env:HOOK", "s3cret")
		apply := func(condition, key string) {
			r.apply("name: order\ntriggers: [{webhook: {secret: 'env:HOOK', if: " + condition + key + "}}]\nsteps: [{id: a, set: 1}]")
		}
		send := func(body string) string {
			return r.deliver("order", signed("s3cret", body, "Webhook-Id", "d-1"), body)
		}
		apply("event.body.id == 7", "")
		wantEqual(r.t, send(`{"id":7}`), "started run-1")
		apply("event.body.id == 9", "")
		wantEqual(r.t, []string{send(`{"id":7}`), send(`{"id":8}`)}, []string{"repeated run-1", "ignored"})
		apply("event.body.id == 9", ", idempotency_key: '${event.body.key}'")
		wantEqual(r.t, send(`{"id":9,"key":"k"}`), "started run-2")
		apply("event.body.id == 10", ", idempotency_key: '${event.body.key}'")
		wantEqual(r.t, []string{send(`{"id":9,"key":"k"}`), send(`{"id":11,"key":"k"}`), send(`{"id":7}`)}, []string{"repeated run-2", "ignored", "ignored"})
	})
}

// TestTrigger_AWebhookThatDoesNotWantWhatItCannotName: what makes the key of a delivery is
// for those that its `if` holds for, and an earlier webhook keeps none from a later one.
func TestTrigger_AWebhookThatDoesNotWantWhatItCannotName(t *testing.T) {
	triggering(t, nil, func(r *triggerRig) {
		r.secret("env:HOOK", "s3cret")
		r.apply(`
name: order
triggers:
  - webhook: {secret: "env:HOOK", if: event.body.type == "paid", idempotency_key: "${event.body.order}"}
  - webhook: {secret: "env:HOOK", if: event.body.type == "refund"}
steps: [{id: a, set: 1}]
`)
		send := func(body string) string { return r.deliver("order", signed("s3cret", body), body) }
		wantEqual(r.t, []string{send(`{"type":"ping"}`), send(`{"type":"refund"}`), send(`{"type":"paid"}`)}, []string{"ignored", "started run-1", "expression"})
	})
}

// TestTrigger_AWebhookIsSigned: with the secret as it is now, over the body as it
// was sent; who does not know it learns nothing.
func TestTrigger_AWebhookIsSigned(t *testing.T) {
	triggering(t, nil, func(r *triggerRig) {
		t := r.t
		r.secret("env:HOOK", "s3cret")
		r.apply(`
name: order
triggers: [{webhook: {secret: "env:HOOK", header: X-Hub-Signature-256}}]
steps: [{id: a, set: 1}]
`)
		const body = `{ "a": "<b>" }`
		good := signed("s3cret", body)["X-Parley-Signature"][0]
		sum, err := hex.DecodeString(strings.TrimPrefix(good, "sha256="))
		check(t, err)
		try := func(given string) string {
			return r.deliver("order", map[string][]string{"x-hub-signature-256": {given}}, body)
		}
		wantEqual(t, try(good), "started run-1")
		for _, same := range []string{strings.TrimPrefix(good, "sha256="), strings.ToUpper(good), base64.StdEncoding.EncodeToString(sum), " " + good} {
			wantEqual(t, try(same), "repeated run-1")
		}
		for _, bad := range []string{"", "sha256=", good[:len(good)-1] + "x", good[:len(good)-2], "sha1=" + good[7:], good + "00", strings.Repeat("0", 64)} {
			wantEqual(t, try(bad), "unauthorized")
		}
		wantEqual(t, r.deliver("order", signed("s3cret", body), body), "unauthorized") // in another header
		wantEqual(t, r.deliver("order", map[string][]string{"X-Hub-Signature-256": {good}}, body+" "), "unauthorized")
		asked := false
		_, err = r.x.Hook(t.Context(), parley.HookRequest{Workflow: "order", Body: func() ([]byte, error) { asked = true; return nil, nil }})
		wantCode(t, err, parley.CodeUnauthorized, "signed")
		if asked {
			t.Error("the body of a request without a signature was read")
		}
		r.secret("env:HOOK", "n3w")
		wantEqual(t, try(good), "unauthorized")
		wantEqual(t, try(signed("n3w", body)["X-Parley-Signature"][0]), "repeated run-1")
		r.secret("env:HOOK", "")
		wantEqual(t, try(good), "unavailable")
		for _, secret := range []string{"s3cret", "n3w", good[7:]} {
			if strings.Contains(r.logged(), secret) {
				t.Errorf("the log has %q:\n%s", secret, r.logged())
			}
		}
		for _, ref := range []string{"order@1", "nothing", ""} {
			wantEqual(t, r.deliver(ref, map[string][]string{"X-Hub-Signature-256": {good}}, body), "not_found")
		}
	})
}

// TestTrigger_TheFirstWebhookThatWantsIt: of several, each with a secret of its
// own.
func TestTrigger_TheFirstWebhookThatWantsIt(t *testing.T) {
	triggering(t, nil, func(r *triggerRig) {
		t := r.t
		r.secret("env:ONE", "1")
		r.secret("env:TWO", "2")
		r.apply(`
name: order
triggers:
  - webhook: {secret: "env:ONE", if: event.body.n < 5, input: {by: one}}
  - webhook: {secret: "env:TWO", input: {by: two}}
  - webhook: {secret: "env:ONE", if: event.body.n < 9, input: {by: three}, idempotency_key: "${event.body.n}"}
  - webhook: {secret: "env:LOST", input: {by: four}}
steps: [{id: a, set: 1}]
`)
		var got []string
		for _, c := range []struct{ secret, n string }{{"1", "1"}, {"2", "1 "}, {"1", "6"}, {"1", "6 "}, {"1", "9"}, {"3", "1"}} {
			body := `{"n":` + c.n + `}`
			got = append(got, r.deliver("order", signed(c.secret, body), body))
		}
		wantEqual(t, got, []string{"started run-1", "started run-2", "started run-3", "idempotency_conflict", "ignored", "unavailable"})
		wantEqual(t, r.runs(), []string{
			`order webhook COMPLETED {"by":"one"}`, `order webhook COMPLETED {"by":"two"}`, `order webhook COMPLETED {"by":"three"}`,
		})
	})
}

// TestTrigger_TheEventOfAWebhook: the whole of it is the input unless the trigger
// says otherwise, without what proves who sent it.
func TestTrigger_TheEventOfAWebhook(t *testing.T) {
	triggering(t, nil, func(r *triggerRig) {
		t := r.t
		r.secret("env:HOOK", "s")
		r.apply("name: raw\ntriggers: [{webhook: {secret: \"env:HOOK\"}}]\nsteps: [{id: a, set: 1}]\n")
		bodies := []string{`{"n": 1.10, "b": "<1>"}`, "a=1&b=2", "", "\xff{"}
		for i, body := range bodies {
			got := r.deliver("raw", signed("s", body, "Webhook-Id", fmt.Sprintf("w%d", i), "Authorization", "Bearer 1", "Cookie", "c=1", "X-Api-Key", "k", "X-Many", "1", "X-Many", "2"), body)
			wantEqual(t, strings.HasPrefix(got, "started"), true)
		}
		event := func(i int, body string) string {
			return fmt.Sprintf(`raw webhook COMPLETED {"id":"w%d","headers":{"webhook-id":"w%d","x-many":"1, 2"},"body":%s}`, i, i, body)
		}
		wantEqual(t, r.runs(), []string{event(0, `{"n":1.10,"b":"<1>"}`), event(1, `"a=1&b=2"`), event(2, `""`), event(3, "\"\uFFFD{\"")})

		deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
		wantEqual(t, r.deliver("raw", signed("s", deep), deep), "limit")
	})
}

// TestTrigger_AWebhookThatCannotStart: says what is wrong to whoever signs.
func TestTrigger_AWebhookThatCannotStart(t *testing.T) {
	triggering(t, nil, func(r *triggerRig) {
		t := r.t
		r.secret("env:HOOK", "s")
		r.apply(`
name: strict
input: {type: object, required: [id], properties: {id: {type: integer}}}
triggers: [{webhook: {secret: "env:HOOK", if: event.body.a.b, input: {id: "${event.body.id}"}}}]
steps: [{id: a, set: 1}]
`)
		send := func(body string) string { return r.deliver("strict", signed("s", body), body) }
		wantEqual(t, []string{send(`{"id": 1}`), send(`{"a":{"b":true},"id":"x"}`), send(`{"a":{"b":true}}`), send(`{"a":{"b":true},"id":1}`)},
			[]string{"expression", "invalid_input", "expression", "started run-1"})
		_, err := r.catalog.Deprecate(t.Context(), parley.DeprecateRequest{Ref: "strict@1"})
		check(t, err)
		wantEqual(t, []string{send(`{"a":{"b":true},"id":1}`), send(`{"a":{"b":true},"id":2}`)}, []string{"repeated run-1", "conflict"})
		r.failing(func(string) error { return errors.New("the disk is full") })
		wantEqual(t, send(`{"a":{"b":true},"id":2}`), "conflict") // that is known without
		r.failing(nil)
		r.apply("name: other\nsteps: [{id: a, set: 1}]\n")
		wantEqual(t, r.deliver("other", signed("s", ""), ""), "not_found")
		time.Sleep(time.Second)
	})
}

// TestTrigger_AnUnreadableWorkflowTellsNothing: who delivers to the webhook of a
// workflow that cannot be read, and is not known yet, learns nothing about it.
func TestTrigger_AnUnreadableWorkflowTellsNothing(t *testing.T) {
	triggering(t, nil, func(r *triggerRig) {
		t := r.t
		_, err := r.db.PutDefinition(t.Context(), store.Definition{
			ID: "old-1", Workflow: "ship", Name: "ship", Version: "1", Digest: "d", Format: "json", CreatedAt: time.Now(), UpdatedAt: time.Now(),
			Source: []byte(`{"name":"ship","start_step":"a","steps":{}}`),
		}, store.PutVersion)
		check(t, err)
		_, err = r.x.Hook(t.Context(), parley.HookRequest{Workflow: "ship", Body: func() ([]byte, error) { return nil, nil }})
		wantCode(t, err, parley.CodeNotFound, `there is no webhook "ship"`)
		if !strings.Contains(r.logged(), "must have at least one step") {
			t.Errorf("the log does not say why: %s", r.logged())
		}
	})
}
