package executor

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/textproto"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/workflow"
)

// deliveryHeaders name a delivery, as senders of webhooks do; the first that is
// there counts.
func deliveryHeaders() []string {
	return []string{
		"Webhook-Id", "X-Github-Delivery", "X-Gitea-Delivery", "X-Gitlab-Event-Uuid", "X-Shopify-Webhook-Id", "Idempotency-Key", "Ce-Id",
	}
}

// maxDelivery bounds the id of a delivery, in characters.
const maxDelivery = 255

// hookTrigger is a webhook of a workflow.
type hookTrigger struct {
	at int
	*workflow.Trigger
}

// Hook starts a run by a delivery to a webhook of a workflow, and gives the run
// that it has started before if it comes again. The first trigger whose secret
// signs the delivery, and that wants it, takes it. The error has code not_found for
// a workflow without webhooks, unauthorized for a delivery that is signed by none
// of the secrets, unavailable if a secret cannot be read, and otherwise those of
// [Executor.Start] and of expressions.
func (x *Executor) Hook(ctx context.Context, req parley.HookRequest) (parley.HookReceipt, error) {
	v, hooks, err := x.hooksOf(ctx, req.Workflow)
	if err != nil {
		return parley.HookReceipt{}, err
	}
	header := textproto.MIMEHeader{}
	for name, values := range req.Header {
		key := textproto.CanonicalMIMEHeaderKey(name)
		header[key] = append(header[key], values...)
	}
	signed := false
	for _, h := range hooks {
		signed = signed || header.Get(h.Webhook.Header) != ""
	}
	if !signed {
		x.cfg.Metrics.trigger(triggerWebhook, fateUnsigned)
		return parley.HookReceipt{}, unsigned()
	}
	body, err := req.Body()
	if err != nil {
		return parley.HookReceipt{}, err
	}
	hooks, err = x.signers(v, hooks, header, body)
	if err != nil {
		x.cfg.Metrics.trigger(triggerWebhook, fateUnsigned)
		return parley.HookReceipt{}, err
	}
	return x.deliverHook(ctx, v, hooks, delivery{header, body})
}

// hooksOf gives the webhooks of the version that a plain start takes.
func (x *Executor) hooksOf(ctx context.Context, ref string) (*compiledVersion, []hookTrigger, error) {
	none := parley.Errorf(parley.CodeNotFound, "there is no webhook %.100q", ref)
	v, err := x.defs.resolve(ctx, ref)
	switch {
	case parley.CodeOf(err) == parley.CodeNotFound:
		return nil, nil, none
	case err != nil && final(err): // who asks has not shown who they are
		x.cfg.Logger.Warn("a delivery is for a workflow that cannot be read", "event", "webhook_unreadable", "workflow", clip(ref, 256), "error", err)
		return nil, nil, none
	case err != nil:
		return nil, nil, err
	case ref != v.row.Workflow && ref != v.row.Name:
		return nil, nil, none // a version of its own: its secret may be an old one
	}
	var hooks []hookTrigger
	for i, t := range v.def.Triggers {
		if t.Webhook != nil {
			hooks = append(hooks, hookTrigger{i, t})
		}
	}
	if len(hooks) == 0 {
		return nil, nil, none
	}
	return v, hooks, nil
}

func unsigned() error {
	return parley.Errorf(parley.CodeUnauthorized, "the request is not signed as the webhook asks")
}

// signers gives the webhooks by whose secrets a delivery is signed: at least one.
// Secrets are read each time, so that a new one counts from then on.
func (x *Executor) signers(v *compiledVersion, hooks []hookTrigger, header textproto.MIMEHeader, body []byte) ([]hookTrigger, error) {
	var verified []hookTrigger
	unread := false
	for _, h := range hooks {
		given := signatures(header[textproto.CanonicalMIMEHeaderKey(h.Webhook.Header)])
		if len(given) == 0 {
			continue
		}
		secret, err := x.secret(h.Webhook.Secret)
		if err != nil {
			unread = true
			x.cfg.Logger.Error("the secret of a webhook cannot be read; deliveries are refused until then", "event", "webhook_secret",
				"workflow", v.row.Workflow, "trigger", h.at, "error", err)
			continue
		}
		mac := hmac.New(sha256.New, secret.Reveal())
		mac.Write(body)
		sum, same := mac.Sum(nil), false
		for _, g := range given {
			same = hmac.Equal(sum, g) || same
		}
		if same {
			verified = append(verified, h)
		}
	}
	switch {
	case len(verified) > 0:
		return verified, nil
	case unread:
		return nil, parley.Errorf(parley.CodeUnavailable, "the request cannot be looked at now; send it again later")
	}
	return nil, unsigned()
}

func (x *Executor) secret(ref string) (parley.Secret, error) {
	if x.cfg.Secret == nil {
		return parley.Secret{}, parley.Errorf(parley.CodeUnavailable, "no secrets are kept here")
	}
	return x.cfg.Secret(ref)
}

// maxSignatures bounds what is compared of one header.
const maxSignatures = 4

// signatures reads what may be an HMAC-SHA256: in hex or base64, with or without
// sha256= before it.
func signatures(values []string) (list [][]byte) {
	for _, value := range values[:min(len(values), maxSignatures)] {
		value = strings.TrimSpace(value)
		if name, rest, ok := strings.Cut(value, "="); ok && strings.EqualFold(name, "sha256") {
			value = rest
		}
		sum, err := hex.DecodeString(value)
		if err != nil {
			sum, err = base64.StdEncoding.DecodeString(value)
		}
		if err == nil && len(sum) == sha256.Size {
			list = append(list, sum)
		}
	}
	return list
}

// delivery is what was sent to a webhook.
type delivery struct {
	header textproto.MIMEHeader
	body   []byte
}

// deliverHook starts the run of a delivery that is signed.
func (x *Executor) deliverHook(ctx context.Context, v *compiledVersion, hooks []hookTrigger, d delivery) (parley.HookReceipt, error) {
	id := d.id()
	event, err := d.event(id, hooks, x.cfg.Limits.Value)
	if err != nil {
		return parley.HookReceipt{}, err
	}
	for _, h := range hooks {
		f, err := x.fireHook(ctx, h, id, firing{
			v: v, trigger: h.Trigger, by: triggerWebhook, event: event, what: string(d.body),
			trace: parley.TraceOf(d.header.Values(parley.HeaderTraceparent), d.header.Values(parley.HeaderTracestate)),
		})
		if err != nil {
			return x.refusedHook(v, id, err)
		}
		if f.run == "" {
			continue
		}
		x.noted(triggerWebhook, f)
		if f.existing {
			return parley.HookReceipt{Status: parley.HookRepeated, Run: f.run}, nil
		}
		return parley.HookReceipt{Status: parley.HookStarted, Run: f.run}, nil
	}
	x.noted(triggerWebhook, fired{})
	return parley.HookReceipt{Status: parley.HookIgnored}, nil
}

// fireHook starts the run of a delivery, or gives the one that it has started, also if
// the webhook does not want it any more.
func (x *Executor) fireHook(ctx context.Context, h hookTrigger, id string, f firing) (fired, error) {
	of := f.v.def.Called()
	wanted, err := h.Holds(of, f.event)
	if err != nil {
		return fired{}, err
	}
	key, err := h.KeyOf(of, f.event)
	switch {
	case err != nil && wanted:
		return fired{}, err
	case err != nil:
		return fired{}, nil //nolint:nilerr // it may lack what those that are wanted have
	case key == "":
		key = id
	}
	if f.key = firingKey(triggerWebhook, key); wanted {
		return x.launchWanted(ctx, f)
	}
	return x.launchedBefore(ctx, f)
}

// launchedBefore gives the run that a firing has started before; nothing if there is none.
func (x *Executor) launchedBefore(ctx context.Context, f firing) (fired, error) {
	unwanted := parley.Errorf(parley.CodeNotFound, "the webhook does not want it")
	_, err := x.cfg.Store.RunByKey(ctx, f.v.row.Workflow, f.key)
	if err == nil {
		var run parley.Run
		run, _, err = x.begunBefore(ctx, f.v.row.Workflow, beginning{key: f.key, digest: digestText(f.what)}, unwanted)
		if err == nil {
			return fired{run: run.ID, existing: true}, nil
		}
	}
	if final(err) { // another delivery has, or none
		return fired{}, nil
	}
	return fired{}, err
}

func (x *Executor) refusedHook(v *compiledVersion, id string, err error) (parley.HookReceipt, error) {
	if final(err) {
		x.missed(triggerWebhook, v.row.Workflow, id, err)
	}
	return parley.HookReceipt{}, err
}

// id tells the delivery from others: what its sender calls it, or, if it does not,
// its body.
func (d delivery) id() string {
	for _, name := range deliveryHeaders() {
		if id := d.header.Get(name); id != "" && utf8.ValidString(id) && utf8.RuneCountInString(id) <= maxDelivery {
			return id
		}
	}
	return "sha256:" + digestText(string(d.body))
}

// event is what the expressions of a webhook see, and, if they do not say
// otherwise, the input of the run: without what the sender proves itself by.
func (d delivery) event(id string, hooks []hookTrigger, most int64) (json.RawMessage, error) {
	headers := make(map[string]string, len(d.header))
	for name, values := range d.header {
		hidden := parley.NamesCredentials(name)
		for _, h := range hooks {
			hidden = hidden || strings.EqualFold(name, h.Webhook.Header)
		}
		if !hidden {
			headers[strings.ToLower(strings.ToValidUTF8(name, "\uFFFD"))] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
		}
	}
	event := plainJSON(struct {
		ID      string            `json:"id"`
		Headers map[string]string `json:"headers"`
		Body    json.RawMessage   `json:"body"`
	}{id, headers, valueOf(d.body)})
	return (&workflow.Definition{}).CheckInput(event, most) // its size and its depth
}

// plainJSON gives v as JSON, with <, > and & as they are.
func plainJSON(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // what is encoded here are strings and valid JSON
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// valueOf gives JSON as it is, and everything else as a JSON string.
func valueOf(b []byte) json.RawMessage {
	if utf8.Valid(b) && json.Valid(b) {
		return b
	}
	return plainJSON(strings.ToValidUTF8(string(b), "\uFFFD"))
}

// placeOf names a trigger of a workflow in a key.
func placeOf(i int) string { return strconv.Itoa(i) + "/" }
