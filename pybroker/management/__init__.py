"""The management process of a member: answers over HTTP what load balancers and orchestrators ask about the node.

The node starts it, and tells it its state. It is a process of its own, so that no number of requests takes time of the
node's event loop, and so that it can report a node that hangs.
"""
