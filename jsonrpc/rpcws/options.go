package rpcws

import (
	"time"

	"github.com/coder/websocket"
)

const (
	defaultPingInterval = 30 * time.Second
	defaultPingTimeout  = 10 * time.Second
	defaultCloseTimeout = time.Second
)

// options is what both ends have in common.
type options struct {
	pingInterval, pingTimeout, closeTimeout time.Duration
	compression                             websocket.CompressionMode
}

func (o options) withDefaults() options {
	if o.pingInterval == 0 {
		o.pingInterval = defaultPingInterval
	}
	if o.pingTimeout <= 0 {
		o.pingTimeout = defaultPingTimeout
	}
	if o.closeTimeout <= 0 {
		o.closeTimeout = defaultCloseTimeout
	}
	return o
}

func compression(on bool) websocket.CompressionMode {
	if on {
		// Without context takeover a connection costs no 32 KiB window and
		// 1.2 MB of compressor for as long as it lives.
		return websocket.CompressionNoContextTakeover
	}
	return websocket.CompressionDisabled
}
