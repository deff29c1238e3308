package client

import (
	"context"
	"net/http"

	"github.com/parley-project/parley"
)

// Keys gives one page of the keys by name. Their secrets are not told.
func (c *Client) Keys(ctx context.Context, p PageQuery) (Page[parley.AccessKey], error) {
	var page Page[parley.AccessKey]
	err := c.get(ctx, path("keys"), p.values(), &page)
	return page, err
}

// AddKey makes a key and gives its secret, this once. A name that a good key has is
// refused with [parley.CodeConflict]. By is not sent.
func (c *Client) AddKey(ctx context.Context, req parley.AccessKeyRequest) (parley.NewAccessKey, error) {
	var k parley.NewAccessKey
	if err := needName("key", req.Name); err != nil {
		return k, err
	}
	err := c.post(ctx, call{path: path("keys")}, struct {
		Name      string         `json:"name"`
		Role      parley.KeyRole `json:"role,omitempty"`
		ExpiresIn string         `json:"expires_in,omitempty"`
	}{req.Name, req.Role, req.ExpiresIn}, &k)
	return k, err
}

// RevokeKey lets a key be good no more, and gives it; again changes nothing.
func (c *Client) RevokeKey(ctx context.Context, name string) (parley.AccessKey, error) {
	var k parley.AccessKey
	if err := needName("key", name); err != nil {
		return k, err
	}
	_, err := c.do(ctx, call{method: http.MethodDelete, path: path("keys", name)}, &k)
	return k, err
}
