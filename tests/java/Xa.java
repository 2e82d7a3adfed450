import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import javax.jms.MessageConsumer;
import javax.jms.Session;
import javax.jms.XAConnection;
import javax.jms.XASession;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.activemq.ActiveMQXAConnectionFactory;
import org.apache.activemq.command.XATransactionId;

/** Transactions in two phases, and what a resource manager answers when it is asked out of turn. */
public final class Xa extends Area {

    /** A branch, by its name. */
    record Branch(String name) implements Xid {
        public int getFormatId() {
            return 4711;
        }

        public byte[] getGlobalTransactionId() {
            return name.getBytes();
        }

        public byte[] getBranchQualifier() {
            return "branch".getBytes();
        }
    }

    private XASession session() throws Exception {
        XAConnection connection = keep(new ActiveMQXAConnectionFactory(uri()).createXAConnection());
        connection.start();
        return connection.createXASession();
    }

    private Branch branch(String suffix) {
        return new Branch(named(suffix));
    }

    /** "ok", what it returned, or the code of the refusal. */
    static Object answer(Callable<?> action) throws Exception {
        try {
            Object answer = action.call();
            return answer == null ? "ok" : answer;
        } catch (XAException refused) {
            return "error " + refused.errorCode;
        }
    }

    private void begin(XASession session, Xid xid, String... bodies) throws Exception {
        session.getXAResource().start(xid, XAResource.TMNOFLAGS);
        send(session, queue(), bodies);
        session.getXAResource().end(xid, XAResource.TMSUCCESS);
    }

    static List<Object> recovered(XAResource resource, String prefix) throws Exception {
        return Arrays.stream(resource.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN))
                .map(xid -> (Object) new String(xid.getGlobalTransactionId()))
                .filter(name -> ((String) name).startsWith(prefix))
                .sorted()
                .toList();
    }

    public Object twoPhases() throws Exception {
        XASession session = session();
        XAResource resource = session.getXAResource();
        Branch branch = branch("");
        begin(session, branch, "m0", "m1");
        List<Object> before = browse(auto(connect()), queue(), null);
        int vote = resource.prepare(branch);
        List<Object> prepared = browse(auto(connect()), queue(), null);
        List<Object> known = recovered(resource, named(""));
        resource.commit(branch, false);
        return facts("before", before, "vote", vote, "prepared", prepared, "recover", known,
                "committed", drain(queue()), "recover after", recovered(resource, named("")));
    }

    public Object onePhase() throws Exception {
        XASession session = session();
        Branch branch = branch("");
        begin(session, branch, "m0");
        session.getXAResource().commit(branch, true);
        return drain(queue());
    }

    public Object rollback() throws Exception {
        XASession session = session();
        Branch branch = branch("");
        begin(session, branch, "never");
        session.getXAResource().rollback(branch);
        return drain(queue());
    }

    public Object rollbackOfPrepared() throws Exception {
        XASession session = session();
        Branch branch = branch("");
        begin(session, branch, "never");
        session.getXAResource().prepare(branch);
        session.getXAResource().rollback(branch);
        return facts("left", drain(queue()), "recover", recovered(session.getXAResource(), named("")));
    }

    public Object readOnly() throws Exception {
        XASession session = session();
        XAResource resource = session.getXAResource();
        Branch branch = branch("");
        begin(session, branch);
        int vote = resource.prepare(branch);
        return facts("vote", vote, "commit after", answer(act(() -> resource.commit(branch, false))));
    }

    public Object receiveInTwoPhases() throws Exception {
        fill(queue(), 3);
        XASession session = session();
        XAResource resource = session.getXAResource();
        MessageConsumer consumer = session.createConsumer(queue());
        Branch branch = branch("");
        resource.start(branch, XAResource.TMNOFLAGS);
        List<Object> received = take(consumer, 2);
        resource.end(branch, XAResource.TMSUCCESS);
        int vote = resource.prepare(branch);
        resource.commit(branch, false);
        session.close();
        return facts("received", received, "vote", vote, "left", drain(queue()));
    }

    /** What a prepared branch has received belongs to it, also after its consumer is gone. */
    public Object preparedKeepsWhatItReceived() throws Exception {
        fill(queue(), 2);
        XASession session = session();
        XAResource resource = session.getXAResource();
        MessageConsumer consumer = session.createConsumer(queue());
        Branch branch = branch("");
        resource.start(branch, XAResource.TMNOFLAGS);
        List<Object> received = take(consumer, 1);
        resource.end(branch, XAResource.TMSUCCESS);
        resource.prepare(branch);
        session.close();
        List<Object> others = drain(queue());
        session().getXAResource().rollback(branch);
        return facts("received", received, "others", others, "rolled back", drain(queue()));
    }

    public Object preparedIsCommittedFromElsewhere() throws Exception {
        XASession session = session();
        Branch branch = branch("");
        begin(session, branch, "m0");
        session.getXAResource().prepare(branch);
        session.close();
        XAResource other = session().getXAResource();
        List<Object> known = recovered(other, named(""));
        other.commit(branch, false);
        return facts("recover", known, "committed", drain(queue()));
    }

    public Object unpreparedDiesWithItsConnection() throws Exception {
        XAConnection connection = keep(new ActiveMQXAConnectionFactory(uri()).createXAConnection());
        XASession session = connection.createXASession();
        Branch branch = branch("");
        begin(session, branch, "never");
        connection.close();
        return facts("left", drain(queue()), "commit", answer(act(() -> session().getXAResource().commit(branch, true))));
    }

    public Object errors() throws Exception {
        XAResource resource = session().getXAResource();
        Branch never = branch("never");
        XASession session = session();
        Branch open = branch("open");
        begin(session, open, "m0");
        return facts(
                "commit of unknown", answer(act(() -> resource.commit(never, false))),
                "one phase of unknown", answer(act(() -> resource.commit(never, true))),
                "rollback of unknown", answer(act(() -> resource.rollback(never))),
                "two phases without prepare", answer(act(() -> session.getXAResource().commit(open, false))),
                "rollback all the same", answer(act(() -> session.getXAResource().rollback(open))));
    }

    public Object prepareOfUnknown() throws Exception {
        XAResource resource = session().getXAResource();
        return answer(() -> resource.prepare(branch("")));
    }

    public Object forget() throws Exception {
        XASession session = session();
        Branch branch = branch("");
        begin(session, branch, "never");
        session.getXAResource().prepare(branch);
        Object answer = answer(act(() -> session.getXAResource().forget(branch)));
        return facts("forget", answer, "recover", recovered(session.getXAResource(), named("")), "left", drain(queue()));
    }

    public Object suspendAndResume() throws Exception {
        XASession session = session();
        XAResource resource = session.getXAResource();
        Branch branch = branch("");
        resource.start(branch, XAResource.TMNOFLAGS);
        send(session, queue(), "m0");
        resource.end(branch, XAResource.TMSUSPEND);
        resource.start(branch, XAResource.TMRESUME);
        send(session, queue(), "m1");
        resource.end(branch, XAResource.TMSUCCESS);
        resource.commit(branch, true);
        return drain(queue());
    }

    public Object twoSessionsJoinOneBranch() throws Exception {
        XAConnection connection = keep(new ActiveMQXAConnectionFactory(uri()).createXAConnection());
        connection.start();
        XASession first = connection.createXASession();
        XASession second = connection.createXASession();
        Branch branch = branch("");
        begin(first, branch, "m0");
        second.getXAResource().start(branch, XAResource.TMJOIN);
        send(second, queue(), "m1");
        second.getXAResource().end(branch, XAResource.TMSUCCESS);
        boolean same = first.getXAResource().isSameRM(second.getXAResource());
        int vote = first.getXAResource().prepare(branch);
        first.getXAResource().commit(branch, false);
        return facts("same resource manager", same, "vote", vote, "committed", drain(queue()));
    }

    public Object manyBranches() throws Exception {
        XASession session = session();
        List<Branch> branches = new ArrayList<>();
        for (int number = 0; number < 5; number++) {
            branches.add(branch("" + number));
            begin(session, branches.get(number), "m" + number);
            session.getXAResource().prepare(branches.get(number));
        }
        List<Object> known = recovered(session.getXAResource(), named(""));
        for (int number : List.of(3, 1, 0)) {
            session.getXAResource().commit(branches.get(number), false);
        }
        session.getXAResource().rollback(branches.get(2));
        session.getXAResource().rollback(branches.get(4));
        return facts("recover", known, "committed", drain(queue()));
    }

    public Object outsideABranch() throws Exception {
        Session session = session();
        return facts(
                "send", thrown(act(() -> send(session, queue(), "plain"))), "commit", thrown(act(session::commit)));
    }

    /** The longest identifiers that X/Open allows. */
    public Object longIdentifiers() throws Exception {
        byte[] full = new byte[Xid.MAXGTRIDSIZE];
        Arrays.fill(full, (byte) 0xfe);
        System.arraycopy(named("").getBytes(), 0, full, 0, named("").length());
        XATransactionId xid = new XATransactionId();
        xid.setFormatId(-1 >>> 1);
        xid.setGlobalTransactionId(full);
        xid.setBranchQualifier(full);
        XASession session = session();
        begin(session, xid, "m0");
        session.getXAResource().prepare(xid);
        boolean found = Arrays.stream(session.getXAResource().recover(XAResource.TMSTARTRSCAN)).anyMatch(known ->
                Arrays.equals(known.getGlobalTransactionId(), full) && Arrays.equals(known.getBranchQualifier(), full));
        session.getXAResource().commit(xid, false);
        return facts("recovered", found, "committed", drain(queue()));
    }
}
