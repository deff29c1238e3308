//go:build jsonrpc_poison

package jsonrpc

// poison says that borrowed bytes are overwritten as soon as they are given
// back, so that code that keeps them is found (RPC-18).
const poison = true

// overwrite spoils bytes that were borrowed. The byte appears in no UTF-8
// text, so what was kept is neither valid JSON nor a known name.
func overwrite(p []byte) {
	for i := range p {
		p[i] = 0xFF
	}
}
