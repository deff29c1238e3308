package client

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/parley-project/parley"
)

// Readiness is what a server says of itself: whether it can serve, what its
// process does, and how each part is: "ok", or what is wrong.
type Readiness struct {
	Status string            `json:"status"`
	Roles  []string          `json:"roles"`
	Checks map[string]string `json:"checks"`
}

// Ready says that requests can be served.
func (r Readiness) Ready() bool { return r.Status == "ready" }

// Readiness asks the server how its parts are. One that is not ready is no error;
// code internal is what answers, but not as a Parley does.
func (c *Client) Readiness(ctx context.Context) (r Readiness, err error) {
	req, err := c.request(ctx, call{method: http.MethodGet, path: "/readyz"})
	if err != nil {
		return r, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return r, c.broken(ctx, http.MethodGet, err, false)
	}
	defer resp.Body.Close()
	body, err := readBody(resp.Body, maxErrorBody)
	if err != nil {
		return r, c.broken(ctx, http.MethodGet, err, false)
	}
	if err := json.Unmarshal(body, &r); err != nil || !r.Ready() && len(r.Roles) == 0 {
		return Readiness{}, parley.Errorf(parley.CodeInternal, "what answers at %s is no Parley (/readyz: status %d)", c.URL(), resp.StatusCode)
	}
	return r, nil
}

// Version gives the version of the server's program.
func (c *Client) Version(ctx context.Context) (string, error) {
	var doc struct {
		Info struct {
			Version string `json:"version"`
		} `json:"info"`
	}
	err := c.get(ctx, path("openapi.json"), nil, &doc)
	return doc.Info.Version, err
}

// Health gives nil when the server is ready to serve. A server that answers
// but is not ready gives an [*Error].
func (c *Client) Health(ctx context.Context) error {
	_, err := c.do(ctx, call{method: http.MethodGet, path: "/readyz"}, nil)
	return err
}
