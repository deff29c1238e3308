package client

import (
	"context"
	"net/http"
)

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
